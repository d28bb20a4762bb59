"""Training: data, the loop, the models that it has to beat, and files that last; on one device or several, in one go or resumed.

    from tlm_book.training import TrainConfig, train
    result = train(TrainConfig(steps=500), model_config, train_tokens, validation_tokens, start=tokenizer.start)

The chapter training explains and exports `step` (one step), `loop` (the run) and `cost` (operations of a step). The rest is written by
hand: `config` holds every choice, `text` and `data` turn files into tokens, `ngrams` counts, `folder` saves and loads models,
`checkpoint` makes a run resumable and `distributed` spreads it over processes, `run` does the whole job.
"""

from tlm_book.training.checkpoint import (
    best_checkpoint,
    checkpoints,
    put_state,
    read_checkpoint,
    read_notes,
    state_of,
    write_checkpoint,
)
from tlm_book.training.config import (
    Size,
    TrainConfig,
    fit_size,
    model_for,
    plan,
    recipe,
)
from tlm_book.training.cost import flops_per_token, peak_matmul_flops
from tlm_book.training.data import (
    TokenFile,
    encode_corpus,
    is_held_out,
    learn_tokenizer,
    read_tokens,
    split_documents,
    write_tokens,
)
from tlm_book.training.distributed import (
    DistContext,
    choose_device,
    dist_context,
    parallelize,
)
from tlm_book.training.folder import (
    load,
    save,
    shipped,
    stored_weights,
    with_weights,
)
from tlm_book.training.loop import (
    Diverged,
    Result,
    due,
    evaluate,
    iter_steps,
    step_seed,
    train,
)
from tlm_book.training.ngrams import (
    bigram,
    bigram_log_probs,
    kneser_ney_log_probs,
    trigram,
    unigram,
    unigram_log_probs,
)
from tlm_book.training.run import (
    RunReport,
    report,
    run_folder,
    train_and_save,
    train_book,
    train_files,
    train_from_file,
)
from tlm_book.training.step import (
    corrupt_tokens,
    enable_checkpointing_and_compile,
    learning_rate,
    optimizer_for,
    parameter_groups,
    sample_batch,
    train_step,
)
from tlm_book.training.text import (
    MARKS,
    read_text,
    split_text,
    stream_documents,
    text_files,
)

__all__ = [
    "train",
    "evaluate",
    "iter_steps",
    "Result",
    "Diverged",
    "due",
    "step_seed",
    "train_step",
    "sample_batch",
    "learning_rate",
    "corrupt_tokens",
    "parameter_groups",
    "optimizer_for",
    "enable_checkpointing_and_compile",
    "flops_per_token",
    "peak_matmul_flops",
    "TrainConfig",
    "Size",
    "fit_size",
    "model_for",
    "recipe",
    "plan",
    "MARKS",
    "read_text",
    "split_text",
    "text_files",
    "stream_documents",
    "split_documents",
    "is_held_out",
    "learn_tokenizer",
    "encode_corpus",
    "TokenFile",
    "write_tokens",
    "read_tokens",
    "unigram_log_probs",
    "bigram_log_probs",
    "kneser_ney_log_probs",
    "unigram",
    "bigram",
    "trigram",
    "save",
    "load",
    "shipped",
    "stored_weights",
    "with_weights",
    "state_of",
    "put_state",
    "checkpoints",
    "write_checkpoint",
    "read_notes",
    "read_checkpoint",
    "best_checkpoint",
    "choose_device",
    "DistContext",
    "dist_context",
    "parallelize",
    "RunReport",
    "report",
    "run_folder",
    "train_and_save",
    "train_from_file",
    "train_book",
    "train_files",
]
