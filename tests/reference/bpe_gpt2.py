"""Records what tiktoken makes of texts with GPT-2's merges.

    python3 bpe_gpt2.py        (needs tiktoken; run once, results kept)

The ranks are built from data/inputs/gpt2-vocab.bpe, so nothing is fetched.
bpe_gpt2.txt has one text a line: its bytes in hexadecimal digits, a blank, and
its tokens with commas between them.
"""
import random

import tiktoken

PATTERN = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
           r"|\s+(?!\S)|\s+")

FIXED = [
    "a", " ", "  ", "\n", "Hello world", " Hello  world ", "don't we'll they've I'm he'd you're it's",
    "'s's 'sad '' 'l 'll' can'T", "x = y_1 + 12345 * 3.14;\n\treturn 0;\n", "\r\n\r\n  \t x",
    "naïve café Zoë", "Привет, мир! 1234", "你好，世界。", "こんにちは 世界", "한국어 문장", "שלום עולם", "مرحبا بالعالم ١٢٣",
    "🙂🙃 👩‍👩‍👧 é", "½ ² Ⅷ 一二三 ٣", "\u00a0\u2003 \u3000x\u200by", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "    " * 30 + "x", "<|endoftext|>", "\x00\x01\x7f", "ſ K Å ﬁ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𝟘𝟙", "co\u00adop", "e\u0301e\u0301",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "!!!???...---***###$$$%%%", "http://www.example.com/a?b=c&d=e#f",
]
POOL = ["the", " and", "'s", "'ll", " ", "  ", "\n", "\t", "1", "234", "é", "ß", "я", "ж", "中", "文", "あ", "🙂", "!", "?", "_", "-",
        "'", "\"", "A", "Z", "ing", " re", "\u00a0", "\u2028", "½", "٣", "ก", "ह", "ि", "\u0301", "x"]


def ranks(path):
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    alphabet = {chr(b): b for b in shown}
    hidden = [b for b in range(256) if b not in shown]
    alphabet.update({chr(256 + i): b for i, b in enumerate(hidden)})
    table = {bytes([b]): i for i, b in enumerate(shown + hidden)}
    for line in open(path, encoding="utf-8").read().split("\n")[1:]:
        if line:
            merged = line.replace(" ", "")
            table[bytes(alphabet[c] for c in merged)] = len(table)
    return table


def main():
    table = ranks("../../data/inputs/gpt2-vocab.bpe")
    encoder = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=table,
                                special_tokens={"<|endoftext|>": len(table)})
    draw = random.Random(7)
    texts = list(FIXED)
    for _ in range(150):
        texts.append("".join(draw.choice(POOL) for _ in range(draw.randint(1, 24))))
    play = open("../../data/inputs/tinyshakespeare.txt").read()
    for _ in range(12):
        at = draw.randrange(len(play) - 400)
        texts.append(play[at:at + 400])
    with open("bpe_gpt2.txt", "w") as out:
        for text in texts:
            tokens = encoder.encode(text, disallowed_special=())
            assert encoder.decode_bytes(tokens) == text.encode()
            out.write(f"{text.encode().hex()} {','.join(map(str, tokens))}\n")


main()
