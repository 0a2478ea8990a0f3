"""Find videos similar to a given one, exactly, with the number of matches expected by chance.

python examples/search_a_folder.py
"""

from __future__ import annotations

from prepared import index


def main() -> None:
    """Search with the video that the encoder is most certain of."""
    opened = index()
    known = opened.loaded.store.read(("id", "uncertainty"))
    _, query = min(zip(known["uncertainty"], known["id"], strict=True))
    answer = opened.search(query, k=3, exclude_same="group", max_chance=None)
    print(f"{query} is like:")
    for hit in answer.hits:
        chance = (
            "" if hit.expected_by_chance is None else f", {hit.expected_by_chance:.2f} expected by chance"
        )
        print(f"  {hit.id}: p {hit.probability:.3f}{chance}, from {hit.clip.start_seconds:.1f} s")
    print(f"No other video can be better: {answer.certificate.is_exact}.")


if __name__ == "__main__":
    main()
