"""Images made like those that a model was trained on."""

import numpy as np
import pytest

from undivided.core.errors import InputError
from undivided.data.images import fit_images


def test_sizes_change_by_means_of_what_a_pixel_covers():
    image = np.array([[[[0, 100], [200, 100]]]], dtype=np.uint8)
    assert fit_images(image, 1, 1, 1).tolist() == [[[[100]]]]
    assert fit_images(image, 1, 4, 4)[0, 0].tolist() == [[0, 0, 100, 100]] * 2 + [[200, 200, 100, 100]] * 2
    assert fit_images(np.array([[[[0, 90, 180]]]], dtype=np.uint8), 1, 1, 2).tolist() == [[[[30, 150]]]]
    same = np.random.RandomState(1).randint(0, 256, (3, 1, 5, 7)).astype(np.uint8)
    assert (fit_images(same, 1, 5, 7) == same).all()


def test_colours_become_grey_and_grey_becomes_colours():
    red = np.zeros((1, 3, 2, 2), dtype=np.uint8)
    red[:, 0] = 200
    assert fit_images(red, 1, 2, 2).tolist() == [[[[60, 60], [60, 60]]]]
    assert fit_images(red[:, :1], 3, 2, 2).shape == (1, 3, 2, 2)
    with pytest.raises(InputError, match="2 channels, but this model was trained on 3"):
        fit_images(red[:, :2], 3, 2, 2)
