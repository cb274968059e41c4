"""A configuration class that comes with the model: its names are its own, vLLM sees those of Llama."""

from transformers import PretrainedConfig


class AcmeConfig(PretrainedConfig):
    model_type = "acme"

    def __init__(self, width: int = 2048, **kwargs) -> None:
        super().__init__(**kwargs)
        self.hidden_size = width
        self.intermediate_size = 4 * width
        self.num_attention_heads = width // 64
        self.num_key_value_heads = width // 256
        self.num_hidden_layers = 3
        self.vocab_size = 32000
        self.max_position_embeddings = 8192
        self.rms_norm_eps = 1e-5
        self.rope_theta = 10000.0
        self.hidden_act = "silu"
        self.head_dim = 64
        self.tie_word_embeddings = False
