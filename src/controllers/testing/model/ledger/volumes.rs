//! Volumes of pods that are drained: few move at a time, the important ones first, and a VM is deleted after its
//! volumes were detached, unless that takes too long.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    super::{
        super::api_server::{ServerObject, WriteRecord},
        faults::Faults,
        volumes::volumes_of,
    },
    Ledger, MachineFacts, NEWS,
};

/// Volumes of one Node that are on the move.
const MOST_MOVING: usize = 5;
/// How long a volume is awaited until it is detached, after the grace period of its pod, and then until it is attached
/// elsewhere; the defaults of the flags.
const DETACH: Duration = Duration::from_mins(2);
const REATTACH: Duration = Duration::from_secs(90);
/// How far clocks are apart.
const CLOCKS: Duration = Duration::from_secs(62);
/// Less than the drain timeout.
const DRAIN: Duration = Duration::from_mins(110);

/// Volumes of a pod that a process evicted.
#[derive(Debug)]
pub(super) struct Move {
    /// Name of the process.
    by: String,
    node: String,
    pod: String,
    priority: i64,
    /// The process got the answer. Otherwise it cannot know whether the pod is being evicted.
    is_answered: bool,
    /// When it was asked for, if it had been refused before: it is in the way of none that is asked for at the same time.
    asked_again_at: Option<Timestamp>,
    volumes: BTreeSet<String>,
    /// The volumes still attached to the Node.
    here: BTreeSet<String>,
    /// The volumes attached to no other Node.
    adrift: BTreeSet<String>,
    since: Instant,
    grace: Duration,
    detached_at: Option<Instant>,
}

impl Move {
    fn is_certainly_detaching(&self) -> bool {
        self.detached_at.is_none() && self.since.elapsed() + CLOCKS < self.grace + DETACH
    }

    /// Every process that has seen it awaits it.
    fn is_certainly_under_way(&self) -> bool {
        match self.detached_at {
            _ if !self.is_answered => false,
            None => self.is_certainly_detaching(),
            Some(at) => {
                let was_in_time = at.duration_since(self.since) + NEWS < self.grace + DETACH;
                was_in_time && !self.adrift.is_empty() && at.elapsed() + CLOCKS < REATTACH
            }
        }
    }
}

impl Ledger {
    /// A starting process has seen no move.
    pub(in super::super) fn process_starts(&mut self, name: &str) {
        self.moves.retain(|it| it.by != name);
        self.asked.retain(|(by, _)| &**by != name);
    }

    /// A new leader: only its own moves are known to it.
    pub(in super::super) fn process_leads(&mut self, name: &str) {
        self.moves.retain(|it| it.by == name);
    }

    pub(in super::super) fn volume_detached(&mut self, volume: &str) {
        for it in &mut self.moves {
            it.here.remove(volume);
            if it.here.is_empty() {
                it.detached_at.get_or_insert_with(Instant::now);
            }
        }
    }

    pub(in super::super) fn volume_attached(&mut self, volume: &str) {
        for it in &mut self.moves {
            it.adrift.remove(volume);
        }
    }

    /// A process evicted a pod.
    pub(super) fn saw_eviction(&mut self, write: &WriteRecord<'_>, pod: &ServerObject, faults: &Faults) {
        let volumes: BTreeSet<String> = volumes_of(pod).into_iter().collect();
        if write.call.subresource != "eviction" || pod.is_terminating() || volumes.is_empty() {
            return;
        }
        let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let by = write.call.caller.to_string();
        let priority = pod.value["spec"]["priority"].as_i64().unwrap_or_default();
        let beside = || self.moves.iter().filter(|it| it.by == by && it.node == node && it.is_certainly_under_way());
        let moving: usize = beside().map(|it| it.volumes.len()).sum();
        faults.must(moving == 0 || moving + volumes.len() <= MOST_MOVING, || {
            format!("pod {} with {} volumes is evicted, and {moving} are on the move", pod.name(), volumes.len())
        });
        let is_beside = |it: &Move| it.asked_again_at.is_some_and(|at| at >= write.call.at);
        let ahead = beside().find(|it| it.priority > priority && !is_beside(it)).map(|it| &it.pod);
        faults.must(ahead.is_none(), || {
            format!(
                "pod {} is evicted before the volumes of {ahead:?}, which is more important, have moved",
                pod.name()
            )
        });
        let was_refused = self.asked.contains(&(Arc::clone(&write.call.caller), pod.name().to_owned()));
        let grace = pod.value["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or_default();
        self.moves.push(Move {
            by,
            node,
            pod: pod.name().to_owned(),
            priority,
            is_answered: faults.rates().api == 0,
            asked_again_at: was_refused.then_some(write.call.at),
            here: volumes.clone(),
            adrift: volumes.clone(),
            volumes,
            since: Instant::now(),
            grace: Duration::from_secs(grace),
            detached_at: None,
        });
    }

    /// The VM of a Machine is deleted.
    pub(super) fn check_volumes(&self, machine: &MachineFacts, faults: &Faults) {
        let Some(node) = self.nodes.get(&machine.node) else { return };
        let in_time = machine.deleted_at.filter(|at| at.elapsed() < DRAIN);
        if machine.is_forced || !in_time.is_some_and(|at| node.has_been_ready_for(at.elapsed())) {
            return;
        }
        let left = self.moves.iter().find(|it| it.node == machine.node && it.is_certainly_detaching());
        faults.must(left.is_none(), || format!("the VM of {} is deleted, and has volumes of {left:?}", machine.name));
    }
}
