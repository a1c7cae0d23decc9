//! Groups of objects with one cause: in an outage thousands of machines have it. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
};

use crate::{
    place_counts::CountsByPlace,
    story::{MACHINE, NamespaceFacts, ObjectAnswer, budget_in},
};
use mcm_api::{labels, machine::Machine};
use mcm_controllers::machine_class::secret_refs;

/// The fewest objects that are shown as one.
pub const FEWEST: usize = 4;
/// The names in the title of a group.
const NAMED: usize = 3;
/// The zones, classes or accounts that are named.
const PARTS: usize = 3;
/// The sign for words that differ within a group.
const DIFFERS: &str = "…";

/// Objects of one kind with one verdict for one cause.
pub struct CauseGroup<'a> {
    /// In their order.
    pub members: Vec<&'a ObjectAnswer>,
    /// The reason of all, where words that differ are an ellipsis.
    pub reason: String,
}

/// The names of objects, by which texts with one cause differ.
#[derive(Default)]
pub struct CauseNames<'a>(HashSet<&'a str>);

impl<'a> FromIterator<&'a str> for CauseNames<'a> {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl CauseNames<'_> {
    /// The text without the words that differ among objects with one cause: names, and words with a digit, such as numbers, times
    /// and identifiers of requests. A budget is a cause of its drains.
    pub fn pattern(&self, text: &str) -> String {
        let mut pattern: Vec<&str> = Vec::new();
        for word in text.split_whitespace() {
            let name = word.trim_matches(|one: char| !one.is_alphanumeric());
            let differs = name.contains(|one: char| one.is_ascii_digit()) || self.0.contains(name);
            match differs {
                true if pattern.last() == Some(&DIFFERS) => {}
                true => pattern.push(DIFFERS),
                false => pattern.push(word),
            }
        }
        let budget = budget_in(text).map(|(namespace, name)| format!(" {namespace}/{name}")).unwrap_or_default();
        pattern.join(" ") + &budget
    }
}

/// One text for several of one pattern: words that differ are an ellipsis.
pub fn merged<'a>(mut texts: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<&str> = texts.next().map(|text| text.split_whitespace().collect()).unwrap_or_default();
    for text in texts {
        let others: Vec<&str> = text.split_whitespace().collect();
        if others.len() != words.len() {
            let start = words.iter().zip(&others).take_while(|(one, other)| one == other).count();
            words.truncate(start);
            words.push(DIFFERS);
            continue;
        }
        for (word, _) in words.iter_mut().zip(others).filter(|(word, other)| *word != other) {
            *word = DIFFERS;
        }
    }
    words.dedup_by(|one, other| *one == DIFFERS && one == other);
    words.join(" ")
}

/// Items in groups of one key, in the order of the first of each.
pub fn by_key<T: Copy, K: Hash + Eq>(all: impl Iterator<Item = T>, key: impl Fn(T) -> K) -> Vec<Vec<T>> {
    let (mut groups, mut places): (Vec<Vec<T>>, HashMap<K, usize>) = (Vec::new(), HashMap::new());
    for one in all {
        let place = *places.entry(key(one)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Answers in groups with one cause, in the order of the first of each. Few with one cause are a group each.
pub fn by_cause(answers: &[ObjectAnswer]) -> Vec<CauseGroup<'_>> {
    let named = answers.iter().flat_map(|one| [one].into_iter().chain(&one.sets).chain(&one.machines));
    let names: CauseNames<'_> = named.map(|one| one.object.name.as_str()).collect();
    let told: Vec<(usize, &ObjectAnswer, String)> =
        answers.iter().enumerate().map(|(place, one)| (place, one, one.reason())).collect();
    let alike = by_key(told.iter(), |(_, one, reason)| {
        let kind = one.waits.first().map(|wait| wait.kind);
        (one.title(), one.verdict, kind, names.pattern(reason))
    });
    let mut groups: Vec<(usize, CauseGroup<'_>)> = Vec::new();
    for alike in alike {
        let size = if alike.len() < FEWEST { 1 } else { alike.len() };
        for members in alike.chunks(size) {
            let reason = merged(members.iter().map(|(_, _, reason)| reason.as_str()));
            let place = members.first().map_or(0, |(place, ..)| *place);
            groups.push((place, CauseGroup { members: members.iter().map(|(_, one, _)| *one).collect(), reason }));
        }
    }
    groups.sort_by_key(|(place, _)| *place);
    groups.into_iter().map(|(_, group)| group).collect()
}

impl CauseGroup<'_> {
    /// The only object, or the number of them and a few names, such as `5000 Machines: a, b, c, …`.
    pub fn title(&self) -> String {
        match self.members.as_slice() {
            [one] => format!("{}/{}", one.title(), one.object.name),
            members => {
                let names: Vec<&str> = members.iter().take(NAMED).map(|one| one.object.name.as_str()).collect();
                let kind = members.first().map(|one| one.title()).unwrap_or_default();
                format!("{} {}: {}, {DIFFERS}", members.len(), plural(&kind), names.join(", "))
            }
        }
    }

    /// Where its machines are; empty for few objects or others.
    pub fn place(&self, facts: &NamespaceFacts) -> String {
        let is_machine = |one: &&&ObjectAnswer| one.api_group.is_none() && one.object.kind == MACHINE;
        let machines = self.members.iter().filter(is_machine).filter_map(|one| facts.machines.get(&one.object.name));
        if self.members.len() < FEWEST { String::new() } else { facts.place_of(machines) }
    }
}

/// The plural of a kind.
pub fn plural(kind: &str) -> String {
    if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") }
}

/// A reason with the place of the objects that have it.
pub fn placed(reason: &str, place: &str) -> String {
    if place.is_empty() { reason.to_owned() } else { format!("{reason} ({place})") }
}

/// How often each value occurs.
pub fn occurrences<K: Ord>(values: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        let count: &mut usize = counts.entry(value).or_default();
        *count = count.saturating_add(1);
    }
    counts
}

/// How often each value occurs, the most frequent first.
pub fn ranked<K: Ord>(values: impl Iterator<Item = K>) -> Vec<(K, usize)> {
    let mut ranked: Vec<(K, usize)> = occurrences(values).into_iter().collect();
    ranked.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    ranked
}

/// A word for the parts of a namespace, and the part of a machine.
type PlaceKind = (&'static str, fn(&NamespaceFacts, &Machine) -> Option<String>);

const PLACES: [PlaceKind; 3] = [
    ("zone", NamespaceFacts::zone_of),
    ("class", |_, machine| Some(machine.spec.class.name.clone())),
    ("account", NamespaceFacts::account_of),
];

/// The machines of a namespace by each kind of place.
fn counts_of(facts: &NamespaceFacts) -> CountsByPlace {
    PLACES.map(|(_, part_of)| occurrences(facts.machines.values().filter_map(|machine| part_of(facts, machine))))
}

impl NamespaceFacts {
    /// The zone of the Node of a machine, or of its template.
    pub fn zone_of(&self, machine: &Machine) -> Option<String> {
        let of_node = machine.node_name().and_then(|node| self.zones.get(node));
        of_node.or_else(|| machine.spec.node_template.metadata.labels.get(labels::ZONE)).cloned()
    }

    /// Provider and Secret of the class of a machine.
    fn account_of(&self, machine: &Machine) -> Option<String> {
        let class = self.classes.get(&machine.spec.class.name)?;
        Some(format!("{}/{}", class.provider, secret_refs(class).next()?.name))
    }

    /// How many of some machines are where, such as `all machines of zone a`. A zone, class or account that all machines of the
    /// namespace share is left out.
    pub fn place_of<'a>(&self, machines: impl Iterator<Item = &'a Machine>) -> String {
        let machines: Vec<&Machine> = machines.collect();
        let mut found = Vec::new();
        if machines.len() == self.machines.len() && machines.len() > 1 {
            found.push("all machines of the namespace".to_owned());
        }
        for ((word, part_of), everywhere) in PLACES.into_iter().zip(self.places.counted(|| counts_of(self))) {
            if everywhere.len() < 2 {
                continue;
            }
            let parts = ranked(machines.iter().filter_map(|machine| part_of(self, machine)));
            match parts.as_slice() {
                [] => {}
                [(part, count)] if everywhere.get(part) == Some(count) => {
                    found.push(format!("all machines of {word} {part}"));
                }
                [(part, count)] if *count == machines.len() => found.push(format!("all in {word} {part}")),
                parts => {
                    let named: Vec<String> =
                        parts.iter().take(PARTS).map(|(part, count)| format!("{part} {count}")).collect();
                    let more = parts.len().checked_sub(PARTS).filter(|more| *more > 0);
                    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
                    found.push(format!("{}: {}{more}", plural(word), named.join(", ")));
                }
            }
        }
        found.join("; ")
    }
}

#[cfg(test)]
mod tests;
