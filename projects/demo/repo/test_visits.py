import os
import unittest

import visits
from resp import Redis


class TestVisits(unittest.TestCase):
    def setUp(self):
        self.redis = Redis(os.environ.get("REDIS_HOST", "redis"))
        self.redis.delete("visits:/home")

    def tearDown(self):
        self.redis.close()

    def test_first_visit_counts(self):
        self.assertEqual(visits.record(self.redis, "/home"), 1)

    def test_visits_add_up(self):
        for expected in (1, 2, 3):
            self.assertEqual(visits.record(self.redis, "/home"), expected)
        self.assertEqual(self.redis.get("visits:/home"), "3")


if __name__ == "__main__":
    unittest.main()
