//! Decides which events are new, which are repetitions, and which exceed the rate limit. Pure: it uses only the times
//! of the events.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

use jiff::{SignedDuration, Timestamp};

use super::occurrence::EventOccurrence;

/// How long after its last occurrence a repetition increments the count of an event.
const FOLD: SignedDuration = SignedDuration::from_mins(10);
/// Burst of events per object.
const BURST: f64 = 25.0;
/// Period after which an object may have one more event.
const REFILL: SignedDuration = SignedDuration::from_mins(5);
/// Entries of each kind that are remembered, as in client-go.
const REMEMBERED: usize = 4096;

/// The decision about an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CorrelationVerdict {
    /// Create a new Event.
    New,
    /// Increment the count of the Event with this name.
    Again {
        /// Its name.
        name: String,
        /// The new count.
        count: i32,
    },
    /// Drop it: the object exceeds the rate limit.
    TooMuch,
}

/// Remembers the events that were written, by the hash of what they say: thousands of texts take megabytes. Two events with one hash
/// would share a count.
#[derive(Debug, Default)]
pub(super) struct EventCorrelator {
    hasher: RandomState,
    written: HashMap<u64, WrittenEvent>,
    budgets: HashMap<u64, EventBudget>,
}

/// Component and object of an event.
#[derive(Hash)]
struct EventOrigin<'a> {
    component: &'static str,
    kind: Option<&'a str>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
}

/// Key for aggregation: events with the same key are repetitions.
#[derive(Hash)]
struct AggregationKey<'a> {
    about: EventOrigin<'a>,
    warning: bool,
    reason: &'static str,
    message: &'a str,
}

#[derive(Debug)]
struct WrittenEvent {
    name: String,
    count: i32,
    last: Timestamp,
}

#[derive(Debug)]
struct EventBudget {
    left: f64,
    at: Timestamp,
}

impl EventCorrelator {
    /// Decides about an event. A repetition is counted here; a new event only in [`Self::created`], after it was
    /// written.
    pub(super) fn judge(&mut self, occurrence: &EventOccurrence) -> CorrelationVerdict {
        let said = AggregationKey::from(occurrence);
        if !self.may_speak(&said.about, occurrence.at) {
            return CorrelationVerdict::TooMuch;
        }
        match self.written.get_mut(&self.hasher.hash_one(&said)) {
            Some(known) if occurrence.at.duration_since(known.last) <= FOLD => {
                known.count = known.count.saturating_add(1);
                known.last = occurrence.at;
                CorrelationVerdict::Again { name: known.name.clone(), count: known.count }
            }
            _ => CorrelationVerdict::New,
        }
    }

    /// A new event was written under this name.
    pub(super) fn created(&mut self, occurrence: &EventOccurrence, name: String) {
        let now = occurrence.at;
        self.written
            .insert(self.hasher.hash_one(AggregationKey::from(occurrence)), WrittenEvent { name, count: 1, last: now });
        shrink(&mut self.written, |known| known.last, |known| now.duration_since(known.last) > FOLD);
    }

    fn may_speak(&mut self, about: &EventOrigin<'_>, now: Timestamp) -> bool {
        let about = self.hasher.hash_one(about);
        if !self.budgets.contains_key(&about) {
            shrink(&mut self.budgets, |budget| budget.at, |budget| budget.at_time(now) >= BURST);
        }
        let budget = self.budgets.entry(about).or_insert(EventBudget { left: BURST, at: now });
        *budget = EventBudget { left: budget.at_time(now), at: now };
        let may = budget.left >= 1.0;
        if may {
            budget.left -= 1.0;
        }
        may
    }
}

impl EventBudget {
    fn at_time(&self, now: Timestamp) -> f64 {
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        (self.left + passed / REFILL.as_secs_f64()).min(BURST)
    }
}

impl<'a> From<&'a EventOccurrence> for AggregationKey<'a> {
    fn from(occurrence: &'a EventOccurrence) -> Self {
        let EventOccurrence { component, regarding, event, at: _ } = occurrence;
        let about = EventOrigin {
            component,
            kind: regarding.kind.as_deref(),
            namespace: regarding.namespace.as_deref(),
            name: regarding.name.as_deref(),
            uid: regarding.uid.as_deref(),
        };
        Self { about, warning: event.warning, reason: event.reason.as_str(), message: &event.message }
    }
}

/// If there are too many entries, drops the expired ones; if that is not enough, the older half.
fn shrink<V>(entries: &mut HashMap<u64, V>, at: impl Fn(&V) -> Timestamp, is_spent: impl Fn(&V) -> bool) {
    if entries.len() <= REMEMBERED {
        return;
    }
    entries.retain(|_, entry| !is_spent(entry));
    if entries.len() <= REMEMBERED {
        return;
    }
    let mut times: Vec<Timestamp> = entries.values().map(&at).collect();
    let half = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(half);
    let median = *median;
    entries.retain(|_, entry| at(entry) > median);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use mcm_api::reasons::EventReason;
    use mcm_rules::plan::Event;

    fn said(uid: &str, message: &str, at: i64) -> EventOccurrence {
        EventOccurrence {
            component: "machine-controller",
            regarding: ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() },
            event: Event::normal(EventReason::Created, message),
            at: Timestamp::from_second(at).unwrap(),
        }
    }

    fn say(known: &mut EventCorrelator, occurrence: &EventOccurrence) -> CorrelationVerdict {
        let verdict = known.judge(occurrence);
        if verdict == CorrelationVerdict::New {
            known.created(occurrence, format!("event-{}", occurrence.at.as_second()));
        }
        verdict
    }

    #[test]
    fn a_repetition_within_ten_minutes_is_counted_on() {
        let mut known = EventCorrelator::default();
        assert_eq!(say(&mut known, &said("u", "made", 0)), CorrelationVerdict::New);
        assert_eq!(
            say(&mut known, &said("u", "made", 600)),
            CorrelationVerdict::Again { name: "event-0".into(), count: 2 }
        );
        assert_eq!(say(&mut known, &said("u", "made", 1201)), CorrelationVerdict::New);
        assert_eq!(say(&mut known, &said("u", "other", 1202)), CorrelationVerdict::New);
        assert_eq!(say(&mut known, &said("v", "made", 1203)), CorrelationVerdict::New);
    }

    #[test]
    fn an_object_may_have_25_events_and_then_one_every_five_minutes() {
        let mut known = EventCorrelator::default();
        for number in 0..25 {
            assert_eq!(say(&mut known, &said("u", &number.to_string(), 0)), CorrelationVerdict::New);
        }
        assert_eq!(say(&mut known, &said("u", "more", 0)), CorrelationVerdict::TooMuch);
        assert_eq!(say(&mut known, &said("v", "more", 0)), CorrelationVerdict::New, "others are not affected");
        assert_eq!(say(&mut known, &said("u", "more", 299)), CorrelationVerdict::TooMuch);
        assert_eq!(say(&mut known, &said("u", "more", 301)), CorrelationVerdict::New);
        assert_eq!(say(&mut known, &said("u", "and more", 302)), CorrelationVerdict::TooMuch);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut known = EventCorrelator::default();
        for number in 0..(3 * REMEMBERED) {
            say(&mut known, &said(&number.to_string(), "made", number as i64 / 100));
        }
        assert!(known.written.len() <= REMEMBERED + 1, "{}", known.written.len());
        assert!(known.budgets.len() <= REMEMBERED + 1, "{}", known.budgets.len());
        let last = 3 * REMEMBERED - 1;
        let again = known.judge(&said(&last.to_string(), "made", last as i64 / 100));
        assert!(matches!(again, CorrelationVerdict::Again { count: 2, .. }), "the newest are kept: {again:?}");
    }
}
