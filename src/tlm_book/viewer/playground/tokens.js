// Text to tokens: byte pair encoding as tokenization.Tokenizer does it, on bytes and merges.

// What Unicode calls white space, which is not quite what this language calls so.
const SPACES = "\\t-\\r\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

class Tokenizer {
  constructor({ pattern, merges, start, texts }) {
    // texts: each token's bytes as a string of characters 0 to 255; start: the token that begins a document
    const inClass = pattern.replace(/\[(\^?)((?:\\.|[^\]\\])*)\]/g, (_, not, inner) => `[${not}${inner.replace(/\\s/g, SPACES)}]`);
    this.pattern = new RegExp(inClass.replace(/\\s/g, `[${SPACES}]`).replace(/\\S/g, `[^${SPACES}]`), "gu");
    this.ranks = new Map(merges.map(([a, b], rank) => [a * 65536 + b, rank]));
    this.start = start;
    this.texts = texts;
    this.known = new Map();
  }
  encode(text) {
    return (text.toWellFormed?.() ?? text).match(this.pattern)?.flatMap((piece) => this.piece(piece)) ?? [];
  }
  piece(piece) {
    let tokens = this.known.get(piece);
    if (!tokens) this.known.set(piece, (tokens = this.merged([...new TextEncoder().encode(piece)])));
    return tokens;
  }
  merged(tokens) { // the merge of smallest rank first, everywhere it stands
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < tokens.length; i++) best = Math.min(best, this.ranks.get(tokens[i] * 65536 + tokens[i + 1]) ?? Infinity);
      if (best === Infinity) return tokens;
      const out = [];
      for (let i = 0; i < tokens.length; i++) {
        if (i + 1 < tokens.length && this.ranks.get(tokens[i] * 65536 + tokens[i + 1]) === best) { out.push(256 + best); i++; } else out.push(tokens[i]);
      }
      tokens = out;
    }
  }
  bytes(tokens) { return Uint8Array.from(tokens.map((t) => this.texts[t]).join(""), (c) => c.charCodeAt(0)); }
  decode(tokens) { return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.bytes(tokens)); }
}
