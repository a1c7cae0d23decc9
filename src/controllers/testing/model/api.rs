//! Calls of the manager, and what becomes of them.

use std::{fmt, sync::Arc};

use jiff::SignedDuration;
use kube::ResourceExt;
use serde::Serialize;

use super::{
    super::store::{Clock, Refused},
    Model,
    cluster::{Cluster, Kind, Part},
    dice::Dice,
    outside::Event,
};
use crate::{
    api::machine::Machine,
    controllers::machine::PodCall,
    drain::{Answer, PodRef, Refusal},
    driver::{Code, DriverError, Vm},
    runtime::{
        cache::{Cache, Cached, Key},
        objects::WriteFailure,
    },
};

/// How often what goes wrong, of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Calls of API servers that fail, or whose answer is lost.
    pub api: usize,
    /// Objects that somebody else changes at the same moment.
    pub overtaken: usize,
    /// Calls in which the process ends.
    pub crash: usize,
    /// Calls of the cloud that fail, or whose answer is lost.
    pub driver: usize,
    /// Things that users and bad luck do, per action.
    pub outside: usize,
    /// Of those, how many are bad luck.
    pub mishaps: usize,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Not carried out, and it is not known whether it was.
    Failed,
    /// Not carried out, by decision of the server.
    Forbidden,
    /// Carried out, and it is not known whether it was.
    AnswerLost,
    /// Somebody else writes first.
    Overtaken,
    CrashBefore,
    CrashAfter,
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, overtaken, crash, driver, outside, mishaps } = self;
        write!(
            f,
            "of 1000: API {api}, overtaken {overtaken}, crash {crash}, cloud {driver}, outside {outside}/{mishaps}"
        )
    }
}

impl Rates {
    pub(super) fn any(dice: &mut Dice) -> Self {
        let mut any = |of: &[usize]| *dice.pick(of).unwrap();
        Self {
            api: any(&[0, 0, 30, 120]),
            overtaken: any(&[0, 20, 80]),
            crash: any(&[0, 0, 5, 25]),
            driver: any(&[0, 0, 60, 250]),
            outside: any(&[10, 25, 50]),
            mishaps: any(&[0, 0, 300, 600]),
        }
    }
}

impl Model {
    /// A write of the manager; `about` tells only the name.
    pub(super) fn write<K, T>(
        &mut self,
        part: Part<K>,
        about: &K,
        effect: impl FnOnce(&mut Kind<K>, &mut Clock) -> Result<T, Refused>,
    ) -> Result<T, WriteFailure>
    where
        K: Cached + PartialEq + Serialize,
    {
        let (fate, name) = (self.fate_of_write(), about.name_any());
        if fate != Fate::Answered {
            self.say(format!("  {fate:?}: {} {name}", K::kind(&())));
        }
        self.crashes |= matches!(fate, Fate::CrashBefore | Fate::CrashAfter);
        let (clock, kind) = part(&mut self.cluster);
        match fate {
            Fate::Failed | Fate::CrashBefore => return Err(WriteFailure::Unknown),
            Fate::Forbidden => return Err(WriteFailure::Refused),
            Fate::Overtaken => kind.touch(clock, &name),
            Fate::Answered | Fate::AnswerLost | Fate::CrashAfter => {}
        }
        let outcome = effect(kind, clock);
        self.cluster.writes += usize::from(outcome.is_ok());
        if matches!(fate, Fate::AnswerLost | Fate::CrashAfter) {
            return Err(WriteFailure::Unknown);
        }
        outcome.map_err(|refused| {
            self.say(format!("  {refused:?}: {} {name}", K::kind(&())));
            match refused {
                Refused::NotFound => WriteFailure::Gone,
                Refused::AlreadyExists => WriteFailure::AlreadyExists,
                Refused::Conflict => WriteFailure::Conflict,
            }
        })
    }

    /// A delete with the UID as precondition.
    pub(super) fn delete<K>(&mut self, part: Part<K>, cache: &Cache<K>, seen: &Arc<K>) -> Result<(), WriteFailure>
    where
        K: Cached + PartialEq + Serialize,
    {
        let (key, uid) = (Key::of(seen.meta()), seen.uid().unwrap());
        match self.write(part, seen, |kind, clock| kind.delete(clock, seen)) {
            Ok(Some(left)) => drop(cache.wrote(K::clone(&left))),
            Ok(None) | Err(WriteFailure::Gone) => cache.removed(&key, &uid),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// A live read, or another call that changes nothing here.
    pub(super) fn read<T>(&mut self, answer: impl FnOnce(&Cluster) -> T) -> Result<T, WriteFailure> {
        let is_answered = !self.dice.per_mille(self.rates.api);
        if !is_answered {
            self.say("  no answer");
        }
        self.crashes |= self.dice.per_mille(self.rates.crash);
        if is_answered { Ok(answer(&self.cluster)) } else { Err(WriteFailure::Unknown) }
    }

    pub(super) fn ask_vm(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        match self.fate_of_call(&WRONG_FOR_STATUS) {
            Ok(_) => self.cloud.status(machine),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create_vm(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        let fate = self.fate_of_call(&[Code::Unimplemented])?;
        let known: Vec<String> = self.cloud.vms.keys().cloned().collect();
        let vm = self.cloud.create(machine)?;
        self.say(format!("  VM {} of {}", vm.provider_id, machine.name_any()));
        if !known.contains(&vm.provider_id) {
            self.boot(&vm.provider_id);
        }
        self.answer(fate, vm)
    }

    pub(super) fn initialize_vm(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        let fate = self.fate_of_call(&[Code::Unimplemented])?;
        let vm = self.cloud.initialize(machine)?;
        self.answer(fate, vm)
    }

    pub(super) fn delete_vm(&mut self, machine: &Machine) -> Result<Option<String>, DriverError> {
        let fate = self.fate_of_call(&[Code::NotFound])?;
        let is_deleted = machine.metadata.deletion_timestamp.is_some();
        for node in self.cloud.delete(machine) {
            self.must(is_deleted, || format!("the VM of {} is deleted, and nobody deleted it", machine.name_any()));
            self.say(format!("  the VM of node {node} is gone"));
            self.lose_contact(&node);
        }
        self.answer(fate, None)
    }

    pub(super) fn evict(&mut self, pod: &PodRef) -> PodCall {
        let found = self.cloud.pods.values().flatten().find(|facts| facts.pod == *pod);
        let Some(grace) = found.map(|facts| facts.grace) else { return PodCall::Gone };
        if self.read(|_| ()).is_err() {
            return PodCall::Answered(Answer::Failed("no answer".to_owned()));
        }
        if self.rates.mishaps > 0 && self.dice.one_in(3) {
            let refusal = Refusal {
                message: "not now".to_owned(),
                budget: Some("default/budget".to_owned()),
                is_misconfigured: self.dice.one_in(3),
            };
            return PodCall::Answered(Answer::Refused(refusal));
        }
        let now = self.now();
        self.cloud.terminate(&pod.uid, now);
        let pause = self.dice.millis(100..2000) + grace / 2;
        self.agenda.add(now + pause, Event::PodEnds { uid: pod.uid.to_string() });
        PodCall::Answered(Answer::Accepted)
    }

    fn fate_of_write(&mut self) -> Fate {
        let Rates { api, overtaken, crash, .. } = self.rates;
        if self.dice.per_mille(api) {
            return *self.dice.pick(&[Fate::Failed, Fate::AnswerLost, Fate::AnswerLost, Fate::Forbidden]).unwrap();
        }
        if self.dice.per_mille(crash) {
            return if self.dice.one_in(2) { Fate::CrashBefore } else { Fate::CrashAfter };
        }
        if self.dice.per_mille(overtaken) { Fate::Overtaken } else { Fate::Answered }
    }

    /// What becomes of a call of the cloud. An error that would be a statement about VMs is no accident.
    fn fate_of_call(&mut self, never: &[Code]) -> Result<Fate, DriverError> {
        let Rates { driver, crash, .. } = self.rates;
        if self.dice.per_mille(crash) {
            self.crashes = true;
            self.say("  crash");
            return if self.dice.one_in(2) { Ok(Fate::CrashAfter) } else { Err(unanswered()) };
        }
        if !self.dice.per_mille(driver) {
            return Ok(Fate::Answered);
        }
        if self.dice.one_in(3) {
            self.say("  the cloud's answer is lost");
            return Ok(Fate::AnswerLost);
        }
        let codes: Vec<Code> = Code::ALL.into_iter().filter(|code| !never.contains(code)).collect();
        let code = *self.dice.pick(&codes).unwrap();
        self.say(format!("  the cloud says {code}"));
        Err(DriverError::new(code, "as it pleases"))
    }

    fn answer<T>(&mut self, fate: Fate, answer: T) -> Result<T, DriverError> {
        if fate == Fate::Answered {
            return Ok(answer);
        }
        let codes = [Code::DeadlineExceeded, Code::Unavailable, Code::Internal, Code::Unknown, Code::Canceled];
        Err(DriverError::new(*self.dice.pick(&codes).unwrap(), "no answer"))
    }

    /// A VM that was just made boots, or does not.
    fn boot(&mut self, id: &str) {
        let never = self.rates.mishaps > 0 && self.dice.one_in(12);
        if never {
            self.say("  it will never boot");
            return;
        }
        let at = self.now() + self.dice.millis(200..90_000);
        self.agenda.add(at, Event::Boots { vm: id.to_owned() });
    }

    /// Nobody speaks for a Node any more.
    pub(super) fn lose_contact(&mut self, node: &str) {
        let at = self.now() + SignedDuration::from_secs(40);
        self.agenda.add(at, Event::LosesContact { node: node.to_owned() });
    }
}

const WRONG_FOR_STATUS: [Code; 3] = [Code::NotFound, Code::Unimplemented, Code::Uninitialized];

fn unanswered() -> DriverError {
    DriverError::new(Code::DeadlineExceeded, "no answer")
}
