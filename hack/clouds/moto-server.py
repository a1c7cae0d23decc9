"""moto's server, with look-ups that do not visit everything, and with addresses that are not reused at once.

To find the tags of one VM moto compares its ID with those of all tags, and for each VM it compiles the values of a filter anew. So the time
of a list grows with the square of the number of VMs. Here tags are found by ID, and a pattern is compiled once. The answers are the same.

moto gives the address of a terminated VM to the next one, so that both Nodes have one name. A cloud controller manager that started on the
former VM writes the ID of that VM on the new Node, and a late deletion of the former Node deletes the new one. Here a subnet holds the
addresses of terminated VMs back.
"""

import collections
import functools
import re
import types

from moto.ec2 import utils
from moto.ec2.models.subnets import Subnet
from moto.ec2.models.tags import TagBackend
from moto.server import main

# Addresses that a subnet holds back; it has about 1,000.
HELD = 100

compare_all = TagBackend.describe_tags
release = Subnet.del_subnet_ip


def describe_tags(self, filters=None):
    ids = (filters or {}).get("resource-id", [])
    if not ids or len(filters) > 1 or any(set("*?[\\") & set(one) for one in ids):
        return compare_all(self, filters)
    own = TagBackend()
    own.tags = {one: self.tags[one] for one in ids if one in self.tags}
    return compare_all(own)


def release_later(self, address):
    held = vars(self).setdefault("held", collections.deque())
    if address not in held:
        held.append(address)
    if len(held) > HELD:
        release(self, held.popleft())


TagBackend.describe_tags = describe_tags
Subnet.del_subnet_ip = release_later
utils.simple_aws_filter_to_re = functools.cache(utils.simple_aws_filter_to_re)
utils.re = types.SimpleNamespace(**{**vars(re), "compile": functools.cache(re.compile)})

if __name__ == "__main__":
    main()
