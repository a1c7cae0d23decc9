use std::{collections::BTreeSet, sync::Arc};

use super::PodFacts;

/// The pods a drain waits for: those of its first list and, once these are terminated, those of the next one. It
/// compares no times, because the clocks of this process, the API server and the Node differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainRounds {
    first: Option<BTreeSet<Arc<str>>>,
    second: Option<BTreeSet<Arc<str>>>,
}

impl DrainRounds {
    /// The pods of the Node were listed.
    pub fn listed(&mut self, pods: &[PodFacts]) {
        let waited_for =
            || pods.iter().filter(|pod| pod.is_drained() && !pod.is_finished).map(|pod| pod.pod.uid.clone());
        match (&self.first, &self.second) {
            (None, _) => self.first = Some(waited_for().collect()),
            (Some(first), None) if !waited_for().any(|uid| first.contains(&uid)) => {
                self.second = Some(waited_for().collect());
            }
            _ => {}
        }
    }

    /// The Node was cordoned, for the first time or again: all pods that run there now count.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// The drain waits for a pod.
    pub fn count(&self, pod: &PodFacts) -> bool {
        let is_in = |round: &Option<BTreeSet<Arc<str>>>| round.as_ref().is_some_and(|uids| uids.contains(&pod.pod.uid));
        self.first.is_none() || is_in(&self.first) || is_in(&self.second)
    }
}
