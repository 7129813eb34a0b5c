"""The networks of the study, in one file each, as users write them."""

from .mixer import Mixer
from .mlp import mlp
from .plain_cnn import PlainCNN
from .recurrent import Recurrent
from .resnet import ResNet20
from .transformer import GPT, VisionTransformer

__all__ = ["GPT", "Mixer", "PlainCNN", "Recurrent", "ResNet20", "VisionTransformer", "mlp"]
