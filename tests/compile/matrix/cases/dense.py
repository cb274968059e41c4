"""Dense decoders, one GPU."""

from tests.compile.matrix.case import Case

CASES = (
    Case(name="llama-3.1-8b", topic="models", model="llama-3.1-8b"),
    Case(name="llama-3.1-8b-h100", topic="gpus", model="llama-3.1-8b", gpu="h100-sxm5-80gb"),
)
