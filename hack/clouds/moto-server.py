"""moto's server, with look-ups that do not visit everything.

To find the tags of one VM moto compares its ID with those of all tags, and for each VM it compiles the values of a filter anew. So the time
of a list grows with the square of the number of VMs. Here tags are found by ID, and a pattern is compiled once. The answers are the same.
"""

import functools
import re
import types

from moto.ec2 import utils
from moto.ec2.models.tags import TagBackend
from moto.server import main

compare_all = TagBackend.describe_tags


def describe_tags(self, filters=None):
    ids = (filters or {}).get("resource-id", [])
    if not ids or len(filters) > 1 or any(set("*?[\\") & set(one) for one in ids):
        return compare_all(self, filters)
    own = TagBackend()
    own.tags = {one: self.tags[one] for one in ids if one in self.tags}
    return compare_all(own)


TagBackend.describe_tags = describe_tags
utils.simple_aws_filter_to_re = functools.cache(utils.simple_aws_filter_to_re)
utils.re = types.SimpleNamespace(**{**vars(re), "compile": functools.cache(re.compile)})

if __name__ == "__main__":
    main()
