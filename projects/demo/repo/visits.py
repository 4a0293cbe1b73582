"""Count the visits of a page."""


def record(redis, page):
    """Record one visit of page and return how many there are now, this one included."""
    return redis.incr("visits:" + page) - 1
