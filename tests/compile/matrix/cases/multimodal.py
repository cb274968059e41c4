"""Models with an encoder: served with images or audio, and as language models alone."""

from tests.compile.matrix.case import Case, names

_TEXT_ONLY = ("--language-model-only",)
_SEEING = names("""
    qwen2.5-vl-7b qwen3-vl-8b qwen3-vl-30b-a3b qwen3.5-35b-a3b qwen3.5-27b gemma-3-4b llama-4-scout
    mistral-small-3.1-24b ministral-3-8b llava-1.5-7b
""")

CASES = (
    *(Case(name=name, topic="models", model=name) for name in _SEEING),
    *(
        Case(name=f"{name}-text-only", topic="features", model=name, args=_TEXT_ONLY)
        for name in ("qwen3.5-35b-a3b", "llama-4-scout")
    ),
    Case(name="whisper-large-v3", topic="models", model="whisper-large-v3", max_len=448),
)
