(* Derivations: the trees that `derive` reads off a model, what operators they denote, and why their kinds are true.

   Chapter `derivations` of the book, checked by Coq. The calculus is a program: it goes through a tree from the leaves to
   the root and gives each node a kind. Below it stand its trees, its rule for each construction, and the meaning of a tree.
   T-derivation-sound is the theorem `soundness`: whatever operator a tree denotes, it is of the kind that the program says. *)

From Coq Require Import List Permutation Bool.
From Coq Require FinFun.
From TLM Require Import Operators.

(* --- What the program does: trees and kinds --------------------------------------------------------------------------- *)

(* What is known of an operator, or of a pattern. Unproved means that nothing is known, not that something is false. *)
Inductive kind :=
  | Rowwise | IndexedRowwise | Autoregressive | Equivariant | Unproved (* of operators *)
  | CausalPattern | EquivariantPattern. (* of patterns *)

(* What a leaf computes. The first three are formulas, and their kinds are proved below; the last is an assumption. *)
Inductive form :=
  | OneMap (* one map for all rows: T(X)[i] = t(X[i]) *)
  | MapOfPlace (* a map for each place: T(X)[i] = t_i(X[i]) *)
  | SameForAll (* one map for all rows, made from all rows, whatever their order: T(X)[i] = t_X(X[i]) *)
  | Declared (k : kind). (* of this kind, somebody says *)

Inductive tree :=
  | Leaf (number : nat)
  | Compose (t u : tree) (* X ↦ U(T(X)): first t, then u *)
  | Combine (t u : tree) (* row i is made of T(X)[i] and U(X)[i]: their sum, their concatenation, their product entry by entry *)
  | Several (t : tree) (* [T_1(X), T_2(X), …]: one or more operators, each as t says, side by side *)
  | Residual (t : tree) (* X ↦ X + T(X) *)
  | MaskedSoftmax (q k : tree) (* X ↦ softmax(◺(scores of the rows of Q(X) with those of K(X))) *)
  | Softmax (q k : tree) (* the same without the mask *)
  | Product (a b : tree). (* X ↦ A(X) B(X) *)

(* What two kinds have in common (`weakest`). *)
Definition meet (k l : kind) : kind :=
  match k with
  | Rowwise => match l with Rowwise | IndexedRowwise | Autoregressive | Equivariant => l | _ => Unproved end
  | IndexedRowwise => match l with Rowwise => k | IndexedRowwise | Autoregressive => l | _ => Unproved end
  | Autoregressive => match l with Rowwise | IndexedRowwise | Autoregressive => k | _ => Unproved end
  | Equivariant => match l with Rowwise | Equivariant => k | _ => Unproved end
  | _ => Unproved
  end.
Definition looks_back (k : kind) : bool := match k with Rowwise | IndexedRowwise | Autoregressive => true | _ => false end.
Definition treats_alike (k : kind) : bool := match k with Rowwise | Equivariant => true | _ => false end.

Definition kind_of_form (f : form) : kind :=
  match f with OneMap => Rowwise | MapOfPlace => IndexedRowwise | SameForAll => Equivariant | Declared k => k end.

Section Calculus.
  Variable forms : nat -> form. (* of the leaves *)

  Fixpoint kind_of (t : tree) : kind :=
    match t with
    | Leaf n => kind_of_form (forms n)
    | Compose t u | Combine t u => meet (kind_of t) (kind_of u)
    | Several t | Residual t => meet (kind_of t) (kind_of t)
    | MaskedSoftmax q k => if looks_back (kind_of q) && looks_back (kind_of k) then CausalPattern else Unproved
    | Softmax q k => if treats_alike (kind_of q) && treats_alike (kind_of k) then EquivariantPattern else Unproved
    | Product a b =>
        match kind_of a with
        | CausalPattern => if looks_back (kind_of b) then Autoregressive else Unproved
        | EquivariantPattern => if treats_alike (kind_of b) then Equivariant else Unproved
        | _ => Unproved
        end
    end.
End Calculus.

(* --- What a tree denotes ---------------------------------------------------------------------------------------------- *)

(* Rows V and numbers W, with what the product A(X)B(X) needs of them. All rows are of one type: the calculus does not look
   at widths, so let V be the vectors of all widths, continued by zeros. These are the laws of exact arithmetic. (In floating
   point the first fails: 0 · ∞ is no number.) *)
Record arithmetic (V W : Type) := {
  plus : V -> V -> V; zero : V; times : W -> V -> V; none : W;
  none_times : forall v, times none v = zero;
  zero_plus : plus zero zero = zero;
  plus_comm : forall u v, plus u v = plus v u;
  plus_assoc : forall u v w, plus u (plus v w) = plus (plus u v) w }.
Arguments plus {V W}. Arguments zero {V W}. Arguments times {V W}. Arguments none {V W}.

Definition whole_numbers : arithmetic nat nat := (* there is such a thing *)
  {| plus := Nat.add; zero := 0; times := Nat.mul; none := 0; none_times := fun _ => eq_refl; zero_plus := eq_refl;
     plus_comm := PeanoNat.Nat.add_comm; plus_assoc := PeanoNat.Nat.add_assoc |}.

Inductive meaning (V W : Type) := Op (T : operator V V) | Pat (A : pattern V W).
Arguments Op {V W}. Arguments Pat {V W}.

Section Meaning.
  Context {V W : Type} (N : arithmetic V W).
  Notation meaning := (meaning V W).

  (* What it means to be of a kind. *)
  Definition holds (k : kind) (m : meaning) : Prop :=
    match k, m with
    | Unproved, _ => True
    | Rowwise, Op T => rowwise T
    | IndexedRowwise, Op T => indexed_rowwise T
    | Autoregressive, Op T => autoregressive T
    | Equivariant, Op T => equivariant T
    | CausalPattern, Pat A => causal_pattern (none N) A
    | EquivariantPattern, Pat A => equivariant_pattern A
    | _, _ => False
    end.

  (* What it means to be of a form. *)
  Definition has_form (f : form) (m : meaning) : Prop :=
    match f, m with
    | OneMap, Op T => exists t, forall X, T X = map t X
    | MapOfPlace, Op T => exists t, forall X, T X = map_rows t X
    | SameForAll, Op T => exists t, (forall X X', Permutation X X' -> forall x, t X x = t X' x) /\ forall X, T X = map (t X) X
    | Declared k, m => holds k m
    | _, _ => False
    end.

  Variable forms : nat -> form.
  Variable means : nat -> meaning -> Prop. (* leaf n stands for any operator T with means n (Op T): Linear, for any weights *)

  (* The operators that a tree denotes: all that can be built as the tree says. A leaf that occurs twice may stand for two
     operators; how two rows are combined, how scores are computed and what softmax does with them is left open. *)
  Inductive denotes : tree -> meaning -> Prop :=
    | denotes_leaf n m : means n m -> denotes (Leaf n) m
    | denotes_compose t u T U : denotes t (Op T) -> denotes u (Op U) -> denotes (Compose t u) (Op (compose U T))
    | denotes_combine t u T U f : denotes t (Op T) -> denotes u (Op U) -> denotes (Combine t u) (Op (side_by_side f T U))
    | denotes_one t T : denotes t (Op T) -> denotes (Several t) (Op T)
    | denotes_more t T U f :
        denotes t (Op T) -> denotes (Several t) (Op U) -> denotes (Several t) (Op (side_by_side f T U))
    | denotes_residual t T : denotes t (Op T) -> denotes (Residual t) (Op (residual (plus N) T))
    | denotes_masked q k Q K (score : nat -> nat -> V -> V -> W) soft : denotes q (Op Q) -> denotes k (Op K) ->
        denotes (MaskedSoftmax q k) (Pat (masked_softmax (none N) score soft Q K))
    | denotes_open q k Q K (score : V -> V -> W) soft : (forall e l l', Permutation l l' -> soft e l = soft e l') ->
        denotes q (Op Q) -> denotes k (Op K) -> denotes (Softmax q k) (Pat (open_softmax (none N) score soft Q K))
    | denotes_product a b A B : denotes a (Pat A) -> denotes b (Op B) ->
        denotes (Product a b) (Op (product (plus N) (zero N) (times N) A B)).

  (* --- Soundness ------------------------------------------------------------------------------------------------------ *)

  Lemma form_sound f m : has_form f m -> holds (kind_of_form f) m.
  Proof.
    destruct f, m as [T|A]; cbn; try contradiction; try exact (fun H => H).
    intros (t & alike & H) p X X' inj [same rows]. split; [now rewrite !height|]. intro i.
    rewrite !H, !nth_error_map, rows. destruct (nth_error X (p i)) as [x|]; [cbn; f_equal|reflexivity].
    apply alike, Permutation_sym, Permutation_nth_error. split; [easy | now exists p].
  Qed.

  Lemma looks_back_sound k T : looks_back k = true -> holds k (Op T) -> autoregressive T.
  Proof.
    destruct k; cbn; try discriminate; intros _ H;
      [now apply rowwise_is_autoregressive | now apply indexed_is_autoregressive | exact H].
  Qed.
  Lemma treats_alike_sound k T : treats_alike k = true -> holds k (Op T) -> equivariant T.
  Proof. destruct k; cbn; try discriminate; intros _ H; [now apply rowwise_is_equivariant | exact H]. Qed.

  (* T-closure-kinds, T-equivariant-closure, W-composition-claim and W-closure-lemmas together: what two operators have in
     common, their composition and any combination have, too. *)
  Lemma meet_sound (P : operator V V -> operator V V -> operator V V) :
    (forall S T, rowwise S -> rowwise T -> rowwise (P S T)) ->
    (forall S T, indexed_rowwise S -> indexed_rowwise T -> indexed_rowwise (P S T)) ->
    (forall S T, autoregressive S -> autoregressive T -> autoregressive (P S T)) ->
    (forall S T, equivariant S -> equivariant T -> equivariant (P S T)) ->
    forall k l S T, holds k (Op S) -> holds l (Op T) -> holds (meet k l) (Op (P S T)).
  Proof.
    intros row index back alike k l S T. destruct k, l; cbn; try contradiction; auto;
      auto using rowwise_is_indexed, indexed_is_autoregressive, rowwise_is_autoregressive, rowwise_is_equivariant.
  Qed.

  Lemma compose_sound k l T U : holds k (Op T) -> holds l (Op U) -> holds (meet k l) (Op (compose U T)).
  Proof.
    apply (meet_sound (fun T U => compose U T));
      auto using compose_rowwise, compose_indexed, compose_autoregressive, compose_equivariant.
  Qed.
  Lemma combine_sound f k l T U : holds k (Op T) -> holds l (Op U) -> holds (meet k l) (Op (side_by_side f T U)).
  Proof.
    apply (meet_sound (side_by_side f));
      auto using side_by_side_rowwise, side_by_side_indexed, side_by_side_autoregressive, side_by_side_equivariant.
  Qed.
  Lemma residual_sound k T : holds k (Op T) -> holds (meet k k) (Op (residual (plus N) T)).
  Proof.
    intro H. pose proof (combine_sound (plus N) Rowwise k identity T identity_rowwise H) as both.
    destruct k; try exact both; contradiction.
  Qed.

  Hypothesis leaves_true : forall n m, means n m -> has_form (forms n) m.

  (* T-derivation-sound. If each leaf computes what its form says, every operator that a tree denotes is of the tree's kind.
     "By induction from the leaves to the root; each step is the lemma of its construction. Where the conditions of a lemma
     fail, the kind is Unproved, which claims nothing." *)
  Theorem soundness t m : denotes t m -> holds (kind_of forms t) m.
  Proof.
    induction 1 as [n m H | t u T U _ IHt _ IHu | t u T U f _ IHt _ IHu | t T _ IH | t T U f _ IHt _ IHu | t T _ IH
      | q k Q K score soft _ IHq _ IHk | q k Q K score soft any _ IHq _ IHk | a b A B _ IHa _ IHb]; cbn [kind_of] in *.
    - now apply form_sound, leaves_true.
    - now apply compose_sound.
    - now apply combine_sound.
    - destruct (kind_of forms t); exact IH || exact I.
    - pose proof (combine_sound f _ _ _ _ IHt IHu). now destruct (kind_of forms t).
    - now apply residual_sound.
    - destruct (looks_back (kind_of forms q)) eqn:q_ok, (looks_back (kind_of forms k)) eqn:k_ok; cbn; try exact I.
      apply masked_softmax_causal; [now apply (looks_back_sound (kind_of forms q)) | now apply (looks_back_sound (kind_of forms k))].
    - destruct (treats_alike (kind_of forms q)) eqn:q_ok, (treats_alike (kind_of forms k)) eqn:k_ok; cbn; try exact I.
      apply open_softmax_equivariant; [exact any | |];
        [now apply (treats_alike_sound (kind_of forms q)) | now apply (treats_alike_sound (kind_of forms k))].
    - destruct (kind_of forms a); try contradiction; try exact I.
      + destruct (looks_back (kind_of forms b)) eqn:b_ok; [|exact I].
        apply (product_autoregressive _ _ _ (none N)); [apply none_times | apply zero_plus | exact IHa |].
        now apply (looks_back_sound (kind_of forms b)).
      + destruct (treats_alike (kind_of forms b)) eqn:b_ok; [|exact I].
        apply product_equivariant; [apply plus_comm | apply plus_assoc | exact IHa |].
        now apply (treats_alike_sound (kind_of forms b)).
  Qed.

  Corollary derived_autoregressive t :
    looks_back (kind_of forms t) = true -> forall T, denotes t (Op T) -> autoregressive T.
  Proof. intros ok T H. now apply (looks_back_sound (kind_of forms t)), soundness. Qed.

  (* The theorem is not about nothing: where each leaf stands for something, a tree with a kind denotes something. *)
  Hypothesis leaves_exist : forall n, exists m, means n m.

  Lemma operator_of_kind k m : holds k m -> looks_back k || treats_alike k = true -> exists T, m = Op T.
  Proof. destruct k, m as [T|A]; cbn; try discriminate; try contradiction; intros _ _; now exists T. Qed.

  Theorem denotes_something t : kind_of forms t <> Unproved -> exists m, denotes t m.
  Proof.
    assert (op : forall u, (kind_of forms u <> Unproved -> exists m, denotes u m) ->
      looks_back (kind_of forms u) || treats_alike (kind_of forms u) = true -> exists T, denotes u (Op T)).
    { intros u IH ok. destruct IH as [m H]; [now destruct (kind_of forms u)|].
      destruct (operator_of_kind _ _ (soundness _ _ H) ok) as [T ->]. now exists T. }
    induction t as [n | t IHt u IHu | t IHt u IHu | t IHt | t IHt | q IHq k IHk | q IHq k IHk | a IHa b IHb]; cbn; intro some.
    - destruct (leaves_exist n) as [m H]. exists m. now constructor.
    - destruct (op t IHt) as [T HT], (op u IHu) as [U HU];
        try (now destruct (kind_of forms t), (kind_of forms u)). eexists. now constructor; eauto.
    - destruct (op t IHt) as [T HT], (op u IHu) as [U HU];
        try (now destruct (kind_of forms t), (kind_of forms u)). exists (Op (side_by_side (plus N) T U)). now constructor.
    - destruct (op t IHt) as [T HT]; [now destruct (kind_of forms t)|]. exists (Op T). now apply denotes_one.
    - destruct (op t IHt) as [T HT]; [now destruct (kind_of forms t)|]. eexists. now constructor; eauto.
    - destruct (op q IHq) as [Q HQ], (op k IHk) as [K HK]; try (now destruct (kind_of forms q), (kind_of forms k)).
      exists (Pat (masked_softmax (none N) (fun _ _ _ _ => none N) (fun _ _ _ => none N) Q K)). now constructor.
    - destruct (op q IHq) as [Q HQ], (op k IHk) as [K HK]; try (now destruct (kind_of forms q), (kind_of forms k)).
      exists (Pat (open_softmax (none N) (fun _ _ => none N) (fun _ _ => none N) Q K)). now constructor.
    - destruct (op b IHb) as [B HB]; [now destruct (kind_of forms a), (kind_of forms b)|].
      destruct IHa as [m H]; [now destruct (kind_of forms a)|]. pose proof (soundness _ _ H) as HA.
      destruct m as [T|A]; [now destruct (kind_of forms a)|]. eexists. now constructor; eauto.
  Qed.
End Meaning.
