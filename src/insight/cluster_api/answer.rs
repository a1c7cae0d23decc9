//! Plans and verdicts for objects of Cluster API. Pure.

use super::{
    CapiFacts, ObjectLookup,
    chain::state,
    object::{CapiObject, Kind},
};
use crate::{
    error::UsageError,
    story::{ExplainedWait, FailingCondition, ObjectAnswer, ObjectVerdict, RuledOut, unsettled},
};
use mcm_rules::plan::SubjectRef;

impl CapiFacts<'_> {
    /// The answer for an object, with its machines that are not settled.
    ///
    /// # Errors
    /// No object has the name.
    pub fn answer(&self, kind: Kind, name: &str) -> Result<ObjectAnswer, UsageError> {
        match self.objects.see(kind, name) {
            ObjectLookup::Present(object) => {
                let machines = self.objects.machines_below(kind, name);
                let machines = machines.into_iter().map(|machine| self.brief(Kind::Machine, machine));
                let mut machines = unsettled(machines);
                if kind == Kind::MCMMachinePool || kind == Kind::MachinePool {
                    machines.extend(self.natives_of_pool(kind, object));
                }
                let answer = self.brief(kind, object);
                let ruled_out = match answer.verdict {
                    ObjectVerdict::Settled => Vec::new(),
                    _ => self.ruled_out(kind, object),
                };
                let verdict = machines.iter().map(|one| one.verdict).fold(answer.verdict, ObjectVerdict::max);
                Ok(ObjectAnswer { verdict, machines, ruled_out, links: self.links(kind, object), ..answer })
            }
            ObjectLookup::Unknown => {
                let state = "it could not be read".to_owned();
                Ok(ObjectAnswer {
                    api_group: Some(kind.group()),
                    ..ObjectAnswer::new(self.subject(kind, name), ObjectVerdict::Unknown, state, Vec::new())
                })
            }
            ObjectLookup::Missing => Err(self.missing(kind, name)),
        }
    }

    /// Everything that is not settled, with the objects of Cluster API, which have the waits of their MCM Machines.
    pub fn with_all(&self, natives: Vec<ObjectAnswer>) -> Vec<ObjectAnswer> {
        let is_shown = |answer: &ObjectAnswer| !self.facts.is_provided(&answer.object);
        unsettled(natives.into_iter().filter(is_shown).chain(self.unsettled()))
    }

    fn unsettled(&self) -> Vec<ObjectAnswer> {
        let every = Kind::ALL.into_iter().flat_map(|kind| self.objects.all(kind).map(move |object| (kind, object)));
        // A Machine has the waits of its infrastructure.
        let is_shown = |(kind, object): &(Kind, &CapiObject)| match kind {
            Kind::MCMMachine => object.owner(Kind::Machine.name()).is_none(),
            Kind::MCMMachinePool => object.owner(Kind::MachinePool.name()).is_none(),
            _ => true,
        };
        unsettled(every.filter(is_shown).map(|(kind, object)| self.brief(kind, object)))
    }

    fn subject(&self, kind: Kind, name: &str) -> SubjectRef {
        self.facts.subject(kind.name(), name)
    }

    fn natives_of_pool(&self, kind: Kind, object: &CapiObject) -> Vec<ObjectAnswer> {
        let name = match kind {
            Kind::MachinePool => &object.spec.template.spec.infrastructure_ref.name,
            _ => object.name(),
        };
        self.deployments_of(name).into_iter().flat_map(|native| native.machines).collect()
    }

    /// The answer without the objects around it.
    pub fn brief(&self, kind: Kind, object: &CapiObject) -> ObjectAnswer {
        let call = &self.facts.place.call;
        let addressed = |wait: ExplainedWait| {
            let remedies = wait.remedies.into_iter().map(|remedy| remedy.addressed(call)).collect();
            ExplainedWait { remedies, ..wait }
        };
        let waits: Vec<ExplainedWait> = self.waits(kind, object).into_iter().map(addressed).collect();
        let verdict = Self::verdict(&waits);
        let native = match kind {
            Kind::Machine => self.objects.see(Kind::MCMMachine, &object.spec.infrastructure_ref.name).known(),
            Kind::MCMMachine => Some(object),
            _ => None,
        };
        let native = native.and_then(|object| self.native(object));
        let (failed, tried) = native.map(|native| (native.failed, native.tried)).unwrap_or_default();
        let owners = self.owners(object);
        let conditions = object.notable().into_iter().map(|(version, condition)| FailingCondition {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            version,
        });
        ObjectAnswer {
            api_group: Some(kind.group()),
            since: object.since(),
            failed: failed.filter(|_| verdict != ObjectVerdict::Settled),
            tried: tried.filter(|_| verdict != ObjectVerdict::Settled),
            conditions: conditions.collect(),
            owners,
            ..ObjectAnswer::new(self.subject(kind, object.name()), verdict, state(kind, object), waits)
        }
    }

    /// The nearest owner that is a controller, with those above it.
    fn owners(&self, object: &CapiObject) -> Vec<SubjectRef> {
        let owners = object.metadata.owner_references.iter().flatten();
        let controller = owners.filter(|owner| owner.controller == Some(true));
        controller.map(|owner| self.facts.subject(&owner.kind, &owner.name)).collect()
    }

    /// The usual causes that do not apply to an object.
    fn ruled_out(&self, kind: Kind, object: &CapiObject) -> Vec<RuledOut> {
        let mut found = Vec::new();
        let mut rule_out = |check, text: &str| found.push(RuledOut { check, text: text.to_owned() });
        let cluster = if kind == Kind::Cluster { Some(object) } else { self.objects.cluster_of(object).known() };
        let Some(cluster) = cluster else { return found };
        if cluster.spec.paused != Some(true) && !object.has_pause() {
            rule_out("paused", "not paused");
        }
        if cluster.status.initialization.infrastructure_provisioned {
            rule_out("infrastructure", "the infrastructure of the Cluster is provisioned");
        }
        if cluster.status.initialization.control_plane_initialized {
            rule_out("controlPlane", "the control plane is initialized");
        }
        if kind == Kind::Machine && object.spec.bootstrap.data_secret_name.is_some() {
            rule_out("bootstrap", "bootstrap data is there");
        }
        found
    }

    fn missing(&self, kind: Kind, name: &str) -> UsageError {
        let namespace = &self.facts.namespace;
        let alike = self.objects.names(kind).map(|known| (strsim::jaro_winkler(known, name), known));
        let alike = alike.filter(|(score, _)| *score > 0.8).max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = match alike {
            Some((_, known)) => format!("did you mean {}?", kind.argument(known)),
            None => format!("kubectl get {}.{} -n {namespace} lists them", kind.plural(), kind.group()),
        };
        UsageError { message: format!("there is no {} in namespace {namespace}", kind.argument(name)), hint }
    }
}
