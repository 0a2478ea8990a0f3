"""Gaussians, mixtures, distances, matches and losses: pure functions, no network.

`docs/notation.md` gives the paper's symbol and equation for every name.
"""

from provico.probability.calibration import Calibration, CalibrationQuality, log_odds
from provico.probability.chance import ChanceModel, own_levels
from provico.probability.distances import DISTANCES, Distance, Moments, Sampled, find_distance, self_distances
from provico.probability.gather import (
    for_averaging,
    gather_mixture,
    gather_videos,
    shared_parameter,
    world_size,
)
from provico.probability.gaussian import Gaussian
from provico.probability.info_nce import info_nce
from provico.probability.losses import (
    LossParts,
    Reduction,
    certainty_weights,
    pair_weights,
    provico_loss,
    soft_contrastive,
)
from provico.probability.match_scores import log_match_scores
from provico.probability.matching import (
    MatchCurve,
    MatchLogProbabilities,
    SelfPairs,
    log_match_probability,
    match_log_probabilities,
)
from provico.probability.mining import (
    AgreedPairs,
    MinedPairs,
    MiningScore,
    agree,
    agreed,
    first_stage_pairs,
    mine_pairs,
    score_mining,
)
from provico.probability.mixture import Mixture, MixtureSamples
from provico.probability.reliability import ReliabilityBin, expected_calibration_error, reliability
from provico.probability.scale import (
    PARAMETRISATIONS,
    Parametrisation,
)

__all__ = [
    "DISTANCES",
    "PARAMETRISATIONS",
    "AgreedPairs",
    "Calibration",
    "CalibrationQuality",
    "ChanceModel",
    "Distance",
    "Gaussian",
    "LossParts",
    "MatchCurve",
    "MatchLogProbabilities",
    "MinedPairs",
    "MiningScore",
    "Mixture",
    "MixtureSamples",
    "Moments",
    "Parametrisation",
    "Reduction",
    "ReliabilityBin",
    "Sampled",
    "SelfPairs",
    "agree",
    "agreed",
    "certainty_weights",
    "expected_calibration_error",
    "find_distance",
    "first_stage_pairs",
    "for_averaging",
    "gather_mixture",
    "gather_videos",
    "info_nce",
    "log_match_probability",
    "log_match_scores",
    "log_odds",
    "match_log_probabilities",
    "mine_pairs",
    "own_levels",
    "pair_weights",
    "provico_loss",
    "reliability",
    "score_mining",
    "self_distances",
    "shared_parameter",
    "soft_contrastive",
    "world_size",
]
