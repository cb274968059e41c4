"""The published model brings its configuration class; this one stands for it: Qwen2's, and a number of MTP layers."""

from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"

    def __init__(self, num_nextn_predict_layers: int = 0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.num_nextn_predict_layers = num_nextn_predict_layers
