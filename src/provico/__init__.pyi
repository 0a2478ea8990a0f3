# The public names, one a line: `__init__.py` reads them from here.
from provico.data.catalog import Catalog as Catalog
from provico.data.catalog import open_catalog as open_catalog
from provico.data.clips import ClipSpec as ClipSpec
from provico.data.demo_set.videos import write_demo_set as write_demo_set
from provico.data.frames.prepared import prepare as prepare
from provico.data.frames.stores import STORES as STORES
from provico.data.layouts.registry import LAYOUTS as LAYOUTS
from provico.data.library import Library as Library
from provico.data.loader import ClipBatch as ClipBatch
from provico.data.loader import ClipLoader as ClipLoader
from provico.data.loader import ClipSettings as ClipSettings
from provico.data.scan import scan as scan
from provico.data.transforms import AUGMENTATIONS as AUGMENTATIONS
from provico.data.transforms import Augmentation as Augmentation
from provico.duplicates.find import find_duplicates as find_duplicates
from provico.embedding.embeddings import VideoEmbedding as VideoEmbedding
from provico.embedding.file import read_embeddings as read_embeddings
from provico.embedding.job import embed_to_file as embed_to_file
from provico.errors import ProvicoError as ProvicoError
from provico.models import BACKBONES as BACKBONES
from provico.models import Encoder as Encoder
from provico.models import EncoderConfig as EncoderConfig
from provico.models.saved import open_encoder as open_encoder
from provico.probability import DISTANCES as DISTANCES
from provico.probability import Gaussian as Gaussian
from provico.probability import Mixture as Mixture
from provico.recipes import RECIPES as RECIPES
from provico.search.index import Index as Index
from provico.search.query import Filter as Filter
from provico.training.classifier import Classifier as Classifier
from provico.training.objective import OBJECTIVES as OBJECTIVES
from provico.training.objective import Objective as Objective
from provico.training.objective import Outcome as Outcome
from provico.training.objective import StepContext as StepContext
from provico.training.pretrain import pretrain as pretrain

__version__: str
