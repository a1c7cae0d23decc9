//! The cache of a driver's verdicts on classes. A reconcile cannot wait for a call, so it gets the cached verdict, and
//! starts a call for the rest.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use mcm_api::machine::MachineClass;
use mcm_driver::spec::ClassProblems;

/// A driver may be replaced by another version.
const AGE: Duration = Duration::from_secs(600);
/// After a call that broke.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// More than any process has classes.
const MOST: usize = 10_000;

/// A class, without fields that change without a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClassHash(u64);

impl ClassHash {
    pub(super) fn from_class(class: &MachineClass) -> Self {
        let ObjectMeta { name, namespace, .. } = &class.metadata;
        let metadata = ObjectMeta { name: name.clone(), namespace: namespace.clone(), ..ObjectMeta::default() };
        let class = MachineClass { metadata, ..class.clone() };
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(&class).ok().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The last verdicts.
#[derive(Debug, Default)]
pub(super) struct VerdictCache(Mutex<HashMap<ClassHash, ClassVerdict>>);

#[derive(Debug, Default)]
struct ClassVerdict {
    problems: Option<ClassProblems>,
    /// The driver is not called again before this time.
    next: Option<Instant>,
}

impl VerdictCache {
    /// The cached answer about a class, and whether to call the driver for it now.
    pub(super) fn look_up(&self, subject: ClassHash) -> (Option<ClassProblems>, bool) {
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.clear();
        }
        let verdict = all.entry(subject).or_default();
        let is_due = verdict.next.is_none_or(|next| next <= Instant::now());
        if is_due {
            verdict.next = Some(Instant::now() + AGE);
        }
        (verdict.problems.clone(), is_due)
    }

    /// The driver answered, or did not.
    pub(super) fn put(&self, subject: ClassHash, problems: Option<ClassProblems>) {
        let mut all = self.0.lock();
        let verdict = all.entry(subject).or_default();
        verdict.next = Some(Instant::now() + if problems.is_some() { AGE } else { PAUSE });
        if problems.is_some() {
            verdict.problems = problems;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_is_asked_for_once_and_again_when_it_changes() {
        let mut class = MachineClass::default();
        let verdicts = VerdictCache::default();
        assert_eq!(verdicts.look_up(ClassHash::from_class(&class)), (None, true));
        assert_eq!(verdicts.look_up(ClassHash::from_class(&class)), (None, false), "the call is under way");
        verdicts.put(ClassHash::from_class(&class), Some(ClassProblems::default()));
        class.metadata.resource_version = Some("2".to_owned());
        assert_eq!(verdicts.look_up(ClassHash::from_class(&class)), (Some(ClassProblems::default()), false));
        class.provider_spec = json!({"zone": 7});
        assert_eq!(verdicts.look_up(ClassHash::from_class(&class)), (None, true));
    }

    #[test]
    fn a_verdict_stays_when_the_driver_cannot_be_asked_again() {
        let (verdicts, subject) = (VerdictCache::default(), ClassHash::from_class(&MachineClass::default()));
        verdicts.put(subject, Some(ClassProblems::default()));
        verdicts.put(subject, None);
        assert_eq!(verdicts.look_up(subject), (Some(ClassProblems::default()), false));
    }
}
