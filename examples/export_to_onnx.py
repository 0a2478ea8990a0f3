"""Export an encoder as one ONNX file for programs without PyTorch. It takes decoded uint8 pixels.

pip install 'provico[onnx]'
python examples/export_to_onnx.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from prepared import encoder, videos
from provico import ClipLoader, open_catalog
from provico.embedding.clips import clip_settings
from provico.models.export import export_encoder


def main() -> None:
    """Export the encoder, and compare onnxruntime with PyTorch on real clips."""
    ours = encoder().eval()
    settings = clip_settings(ours.config, num_clips=2)
    catalog = open_catalog(videos()).subset([0])
    (batch,) = ClipLoader(catalog, settings, batch_size=1, drop_last=False, shuffle=False)
    with tempfile.TemporaryDirectory() as folder:
        export_encoder(ours, Path(folder) / "exported", format="onnx")
        path = Path(folder) / "exported" / "encoder.onnx"
        session = onnxruntime.InferenceSession(path)
        (pixels,) = session.get_inputs()
        mean, log_var = session.run(None, {pixels.name: batch.pixels[0].numpy()})
        print(f"{path.stat().st_size / 1e6:.1f} MB; {pixels.name} {pixels.shape}")
        print(f"gives means {mean.shape} and log-variances {log_var.shape}.")
    expected = ours.encode_clips(batch.pixels[0])
    print(f"Largest difference of the means: {np.abs(mean - expected.mean.detach().numpy()).max():.1e}")


if __name__ == "__main__":
    main()
