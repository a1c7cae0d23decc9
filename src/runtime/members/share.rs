//! The namespaces that each member of a fleet is to serve. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Of a hundred namespaces, as many move at once.
const MOST_MOVING: usize = 5;

/// The member that is to serve a namespace: the same for all members that see the same ones. When a member joins or ends, only its
/// namespaces move (rendezvous hashing).
pub fn wished_member<'a>(namespace: &str, members: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    members.into_iter().max_by_key(|member| (weight(member, namespace), *member))
}

/// FNV-1a of both, with its bits mixed: alone, names that differ at their end have similar weights.
fn weight(member: &str, namespace: &str) -> u64 {
    let bytes = member.bytes().chain([0]).chain(namespace.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// A namespace that this member serves, or is ready to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedState {
    /// It holds no claim of it yet.
    Waits,
    /// It holds a claim.
    Holds,
    /// It is being handed over.
    Leaves,
}

/// The facts for a decision about all namespaces.
pub struct ShareFacts<'a> {
    /// This member.
    pub own: &'a str,
    /// All members that live.
    pub live: &'a BTreeSet<String>,
    /// A member is ready to take a namespace over.
    pub is_asked_for: &'a dyn Fn(&str, &str) -> bool,
    /// All namespaces with a control plane.
    pub found: &'a BTreeSet<String>,
    /// Those that this member serves.
    pub served: &'a BTreeMap<String, ServedState>,
}

/// The namespaces to serve, and those to hand over, with the member that takes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharePlan {
    /// To be served, or to be made ready.
    pub serve: BTreeSet<String>,
    /// Stop now: the next member is ready.
    pub hand_over: BTreeMap<String, String>,
}

impl ShareFacts<'_> {
    /// Decides. A claim is handed over only to a member that is ready, and few of them at once.
    pub fn plan(&self) -> SharePlan {
        let held = self.served.values().filter(|state| **state != ServedState::Waits).count();
        let moving = self.served.values().filter(|state| **state == ServedState::Leaves).count();
        let mut free = (held * MOST_MOVING / 100).max(1).saturating_sub(moving);
        let mut plan = SharePlan::default();
        for namespace in self.found {
            let members = self.live.iter().map(String::as_str);
            let wished = wished_member(namespace, members.filter(|member| *member != self.own).chain([self.own]));
            let wished = wished.filter(|member| *member != self.own);
            match (wished, self.served.get(namespace)) {
                (_, Some(ServedState::Leaves)) => {}
                (None, _) => drop(plan.serve.insert(namespace.clone())),
                (Some(member), Some(ServedState::Holds)) => {
                    if free > 0 && (self.is_asked_for)(member, namespace) {
                        free -= 1;
                        plan.hand_over.insert(namespace.clone(), member.to_owned());
                    } else {
                        plan.serve.insert(namespace.clone());
                    }
                }
                (Some(_), Some(ServedState::Waits) | None) => {}
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("shoot--team--{number}")).collect()
    }

    fn members(count: u32) -> Vec<String> {
        (0..count).map(|slot| format!("mcm-fleet-one-{slot:08x}")).collect()
    }

    fn wished<'a>(namespace: &str, members: &'a [String]) -> &'a str {
        wished_member(namespace, members.iter().map(String::as_str)).unwrap()
    }

    #[test]
    fn without_members_there_is_no_wish() {
        assert_eq!(wished_member("a", []), None);
    }

    proptest! {
        #[test]
        fn each_replica_has_the_same_answer_and_a_change_of_members_moves_their_share(
            mut slots in proptest::collection::btree_set(any::<u32>(), 2..8), order in any::<u64>(),
        ) {
            let leases = |slots: &BTreeSet<u32>| -> Vec<String> {
                slots.iter().map(|slot| format!("mcm-fleet-one-{slot:08x}")).collect()
            };
            let all = leases(&slots);
            let mut shuffled = all.clone();
            shuffled.rotate_left((order % all.len() as u64) as usize);
            let namespaces = names(500);
            let before: Vec<&str> = namespaces.iter().map(|namespace| wished(namespace, &all)).collect();
            let same: Vec<&str> = namespaces.iter().map(|namespace| wished(namespace, &shuffled)).collect();
            prop_assert_eq!(&before, &same);
            let gone = slots.pop_first().unwrap();
            let left = leases(&slots);
            let gone = format!("mcm-fleet-one-{gone:08x}");
            let mut moves = 0;
            for (namespace, before) in namespaces.iter().zip(&before) {
                if *before == gone {
                    moves += 1;
                } else {
                    prop_assert_eq!(wished(namespace, &left), *before, "only namespaces of the member that ended move");
                }
            }
            // 500/N, within six standard deviations.
            let share = 500.0 / all.len() as f64;
            prop_assert!((f64::from(moves) - share).abs() < 6.0 * share.sqrt(), "{} of {}", moves, share);
        }
    }

    struct Facts {
        live: BTreeSet<String>,
        found: BTreeSet<String>,
        served: BTreeMap<String, ServedState>,
        is_ready: bool,
    }

    impl Facts {
        /// Namespaces that the first of some members holds.
        fn held(count: usize, live: u32) -> Self {
            let found = names(count);
            let served = found.iter().map(|namespace| (namespace.clone(), ServedState::Holds)).collect();
            Self { live: members(live).into_iter().collect(), found, served, is_ready: true }
        }

        fn plan(&self) -> SharePlan {
            ShareFacts {
                own: &members(1)[0],
                live: &self.live,
                is_asked_for: &|_, _| self.is_ready,
                found: &self.found,
                served: &self.served,
            }
            .plan()
        }
    }

    #[test]
    fn a_member_serves_its_wishes_and_stops_to_wait_for_those_of_others() {
        let mut facts = Facts::held(200, 3);
        facts.served.values_mut().for_each(|state| *state = ServedState::Waits);
        let plan = facts.plan();
        let wishes: BTreeSet<String> =
            facts.found.iter().filter(|name| wished(name, &members(3)) == members(1)[0]).cloned().collect();
        assert_eq!(plan, SharePlan { serve: wishes.clone(), hand_over: BTreeMap::new() });
        assert!((40..90).contains(&wishes.len()), "{}", wishes.len());
    }

    /// A member that does not see its own Lease yet serves its share nevertheless.
    #[test]
    fn a_member_counts_itself() {
        let mut facts = Facts::held(50, 0);
        facts.served.clear();
        assert_eq!(facts.plan().serve, facts.found);
    }

    #[test]
    fn few_namespaces_move_at_once_and_only_to_members_that_are_ready() {
        let mut facts = Facts::held(200, 2);
        let plan = facts.plan();
        assert_eq!(plan.hand_over.len(), 10, "5 % of 200");
        assert!(plan.hand_over.values().all(|member| *member == members(2)[1]));
        assert_eq!(plan.serve.len(), 190);

        for namespace in plan.hand_over.into_keys() {
            facts.served.insert(namespace, ServedState::Leaves);
        }
        assert_eq!(facts.plan().hand_over.len(), 0, "these are on their way");
        facts.served.retain(|_, state| *state == ServedState::Holds);
        assert_eq!(facts.plan().hand_over.len(), 9);
        facts.is_ready = false;
        assert_eq!((facts.plan().hand_over.len(), facts.plan().serve.len()), (0, 190));
        assert_eq!(Facts::held(19, 2).plan().hand_over.len(), 1, "at least one");
    }

    #[test]
    fn a_namespace_without_a_control_plane_is_not_served() {
        let mut facts = Facts::held(3, 1);
        facts.found.pop_first();
        assert_eq!(facts.plan().serve, facts.found);
    }
}
