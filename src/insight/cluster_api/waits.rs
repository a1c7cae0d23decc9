//! Waits of objects of Cluster API. Pure.

use kube::ResourceExt;

use super::{
    CapiFacts, ObjectLookup,
    cause::{WaitingObject, cause_of},
    object::{CapiCondition, CapiObject, Kind},
};
use crate::{
    story::{DEPLOYMENT, ExplainedWait, MACHINE, ObjectAnswer, ObjectVerdict},
    terminal::short,
};
use mcm_api::{
    labels,
    reasons::{ProviderCondition, ProviderReason},
};
use mcm_rules::plan::{cause::WaitCause, counted, guide::WaitEnd};

/// Reasons of a condition about Nodes for which core has not looked at them.
const NOT_LOOKED: [&str; 3] = ["InspectionFailed", "NodeInspectionFailed", "ConnectionDown"];

impl<'a> CapiFacts<'a> {
    /// The waits of an object, the worst first; empty if it is as it should be.
    pub fn waits(&self, kind: Kind, object: &CapiObject) -> Vec<ExplainedWait> {
        if let Some(paused) = self.paused(kind, object) {
            return vec![paused];
        }
        let mut waits = match kind {
            Kind::Machine if object.is_deleting() => self.deletion_of_machine(object),
            Kind::MCMMachine => self.mcm_machine(object, &self.place(kind, object)),
            _ if object.is_deleting() => self.deletion(kind, object),
            Kind::Cluster => self.cluster(object),
            Kind::MCMCluster => self.readiness(kind, object),
            Kind::MachineDeployment | Kind::MachineSet => self.replicas(kind, object),
            Kind::Machine => self.machine(object),
            Kind::MachinePool => self.pool(object),
            Kind::MCMMachinePool => self.mcm_pool(object, &self.place(kind, object)),
        };
        waits.extend(self.absent_provider(kind, object).filter(|_| !waits.is_empty()));
        waits.sort_by_key(|wait| wait.end);
        waits
    }

    /// The wait for the provider, if it acts next and no process holds its Lease. It may run without leader election.
    fn absent_provider(&self, kind: Kind, object: &CapiObject) -> Option<ExplainedWait> {
        let is_next = match kind {
            Kind::MCMCluster | Kind::MCMMachine | Kind::MCMMachinePool => true,
            Kind::Machine => {
                object.spec.infrastructure_ref.kind == Kind::MCMMachine.name()
                    && (object.is_deleting() || object.status.node_ref.name.is_empty())
            }
            Kind::MachinePool => object.spec.template.spec.infrastructure_ref.kind == Kind::MCMMachinePool.name(),
            Kind::Cluster | Kind::MachineDeployment | Kind::MachineSet => false,
        };
        let vacancy = self.objects.provider.as_ref().filter(|_| is_next)?.vacancy(self.facts.now)?;
        let text = format!("the provider, which may not run: {vacancy}");
        Some(self.place(kind, object).wait_for(WaitCause::Provider, text, None))
    }

    fn place<'b>(&'b self, kind: Kind, object: &'b CapiObject) -> WaitingObject<'b> {
        WaitingObject { kind, object, namespace: &self.facts.namespace }
    }

    fn paused(&self, kind: Kind, object: &CapiObject) -> Option<ExplainedWait> {
        let place = self.place(kind, object);
        if object.has_pause() {
            let text = "its annotation cluster.x-k8s.io/paused to be removed";
            return Some(place.wait_for(WaitCause::Paused, text, None));
        }
        let cluster = if kind == Kind::Cluster { Some(object) } else { self.objects.cluster_of(object).known() };
        if let Some(cluster) = cluster.filter(|cluster| cluster.spec.paused == Some(true)) {
            let text = format!("Cluster {} to be resumed: its spec.paused is true", cluster.name());
            return Some(place.wait_for(WaitCause::PausedCluster, text, None));
        }
        let is_paused = kind == Kind::MachineDeployment && object.spec.paused == Some(true);
        is_paused.then(|| {
            place.wait_for(WaitCause::PausedRollout, "its rollout to be resumed: its spec.paused is true", None)
        })
    }

    fn cluster(&self, cluster: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(Kind::Cluster, cluster);
        if !cluster.is_provisioned() {
            return vec![self.cluster_infrastructure(cluster, &place)];
        }
        let mut waits: Vec<ExplainedWait> = self.control_plane(cluster, &place).into_iter().collect();
        if let Some(probe) = cluster.lacks("RemoteConnectionProbe").filter(|_| waits.is_empty()) {
            let text = format!("the workload cluster to answer: {}", short(&probe.text()));
            waits.push(place.wait_for(WaitCause::Connection, text, None));
        }
        let machines = self.objects.machines_below(Kind::Cluster, cluster.name());
        let others = machines.iter().filter(|machine| !self.waits(Kind::Machine, machine).is_empty()).count();
        if others > 0 {
            let text = format!("{others} of {} machines", machines.len());
            waits.push(place.wait_for(WaitCause::Machines, text, None));
        }
        let pools = self.objects.in_cluster(Kind::MachinePool, cluster.name());
        let pools = pools.filter(|pool| !self.waits(Kind::MachinePool, pool).is_empty());
        let pools: Vec<&str> = pools.map(CapiObject::name).collect();
        if !pools.is_empty() {
            waits.push(place.wait_for(
                WaitCause::Machines,
                format!("the machines of MachinePool {}", pools.join(", ")),
                None,
            ));
        }
        let available = cluster.lacks("Available").filter(|one| !is_of_external_control_plane(cluster, one));
        if let Some(available) = available.filter(|_| waits.is_empty()) {
            waits.push(place.wait_for(
                WaitCause::Core,
                format!("the Cluster to be available: {}", short(&available.text())),
                None,
            ));
        }
        waits
    }

    fn cluster_infrastructure(&self, cluster: &CapiObject, place: &WaitingObject<'_>) -> ExplainedWait {
        let reference = &cluster.spec.infrastructure_ref;
        let own =
            (reference.kind == Kind::MCMCluster.name()).then(|| self.objects.see(Kind::MCMCluster, &reference.name));
        let lacking = match &own {
            Some(ObjectLookup::Present(object)) => object.lacks("Ready"),
            Some(ObjectLookup::Missing | ObjectLookup::Unknown) | None => None,
        };
        let reason = match own {
            Some(ObjectLookup::Missing) => Some("it does not exist".to_owned()),
            _ => lacking.map(CapiCondition::text),
        };
        let reason = reason.or_else(|| cluster.lacks("InfrastructureReady").map(CapiCondition::text));
        let reason = reason.map(|reason| format!(": {}", short(&reason))).unwrap_or_default();
        let text =
            format!("{} {} of Cluster {} to be provisioned{reason}", reference.kind, reference.name, cluster.name());
        place.wait_for(lacking.map_or(WaitCause::ClusterInfrastructure, infrastructure_cause), text, None)
    }

    /// The wait for the control plane, until it is initialized.
    fn control_plane(&self, cluster: &CapiObject, place: &WaitingObject<'_>) -> Option<ExplainedWait> {
        if cluster.status.initialization.control_plane_initialized {
            return None;
        }
        if self.is_control_plane_external(cluster) {
            let text = format!(
                "the control plane of Cluster {} to be reported as initialized: spec.controlPlaneRef is empty, and no Machine is \
                 part of it",
                cluster.name()
            );
            return Some(place.wait_for(WaitCause::ExternalControlPlane, text, None));
        }
        let reference = &cluster.spec.control_plane_ref;
        let what = match reference.name.as_str() {
            "" => format!("the control plane of Cluster {}", cluster.name()),
            name => format!("{} {name}, the control plane of Cluster {},", reference.kind, cluster.name()),
        };
        let machines = self.objects.in_cluster(Kind::Machine, cluster.name()).filter(|one| one.is_control_plane());
        let machines: Vec<&str> = machines.map(CapiObject::name).collect();
        let machines = match machines.as_slice() {
            [] => "; it has no Machine yet".to_owned(),
            [one] => format!("; its Machine is {one}"),
            many => format!("; its Machines are {}", many.join(", ")),
        };
        Some(place.wait_for(WaitCause::ControlPlane, format!("{what} to be initialized{machines}"), None))
    }

    /// No object of Cluster API is the control plane, so core cannot detect that it runs.
    fn is_control_plane_external(&self, cluster: &CapiObject) -> bool {
        let mut machines = self.objects.in_cluster(Kind::Machine, cluster.name());
        cluster.spec.control_plane_ref.name.is_empty()
            && cluster.spec.topology.is_none()
            && self.objects.is_read(Kind::Machine)
            && !machines.any(CapiObject::is_control_plane)
    }

    fn replicas(&self, kind: Kind, object: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(kind, object);
        let (wanted, status) = (object.spec.replicas.unwrap_or(1), &object.status);
        let mut waits = Vec::new();
        if status.available_replicas < wanted {
            let missing = wanted - status.available_replicas;
            let reason = object.condition("ScalingUp").filter(|one| one.message.contains("blocked"));
            let reason = reason.map(|one| format!(": {}", short(&one.text()))).unwrap_or_default();
            waits.push(place.wait_for(
                WaitCause::Machines,
                format!("{missing} of {wanted} machines to be available{reason}"),
                None,
            ));
        }
        if status.replicas > wanted {
            let text = format!("{} to be deleted", counted(status.replicas - wanted, "machine"));
            waits.push(place.wait_for(WaitCause::Machines, text, None));
        }
        if let Some(rolling) = object.condition("RollingOut").filter(|one| one.is_true()) {
            waits.push(place.wait_for(WaitCause::Rollout, format!("its rollout: {}", short(&rolling.text())), None));
        }
        waits
    }

    fn machine(&self, machine: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(Kind::Machine, machine);
        let mut waits = match machine.status.node_ref.name.is_empty() {
            true => self.creation(machine, &place),
            false => self.health(machine, &place),
        };
        if let Some(check) =
            machine.lacks("HealthCheckSucceeded").filter(|_| machine.lacks("OwnerRemediated").is_some())
        {
            let text = format!("its owner to replace it: {}", short(&check.text()));
            waits.push(place.wait_for(WaitCause::Remediation, text, None));
        }
        waits
    }

    fn creation(&self, machine: &CapiObject, place: &WaitingObject<'_>) -> Vec<ExplainedWait> {
        let cluster = match self.objects.cluster_of(machine) {
            ObjectLookup::Missing => {
                let text = format!("Cluster {}, which does not exist", machine.cluster_name());
                return vec![place.wait_for(WaitCause::Core, text, None)];
            }
            cluster => cluster.known(),
        };
        if let Some(cluster) = cluster.filter(|cluster| !cluster.is_provisioned()) {
            return vec![self.cluster_infrastructure(cluster, place)];
        }
        if let Some(wait) = self.bootstrap(machine, cluster, place) {
            return vec![wait];
        }
        let infrastructure = self.infrastructure(machine, place);
        if !infrastructure.is_empty() {
            return infrastructure;
        }
        let control_plane = cluster.and_then(|cluster| self.control_plane(cluster, place));
        match control_plane.filter(|_| !machine.is_control_plane()) {
            Some(wait) => vec![wait],
            None => {
                let health = machine.lacks("NodeHealthy").filter(|one| !NOT_LOOKED.contains(&one.reason.as_str()));
                let reason = health.map(|one| format!(": {}", short(&one.text()))).unwrap_or_default();
                vec![place.wait_for(WaitCause::NodeJoin, format!("its Node to join{reason}"), None)]
            }
        }
    }

    /// The wait for bootstrap data, without which no VM is created.
    fn bootstrap(
        &self,
        machine: &CapiObject,
        cluster: Option<&CapiObject>,
        place: &WaitingObject<'_>,
    ) -> Option<ExplainedWait> {
        let infrastructure = self.objects.see(Kind::MCMMachine, &machine.spec.infrastructure_ref.name).known();
        let has_vm = infrastructure.is_some_and(|one| !one.spec.provider_id.is_empty());
        if machine.spec.bootstrap.data_secret_name.is_some() || has_vm {
            return None;
        }
        let control_plane = cluster.and_then(|cluster| self.control_plane(cluster, place));
        if let Some(wait) = control_plane.filter(|_| !machine.is_control_plane()) {
            return Some(wait);
        }
        let config = &machine.spec.bootstrap.config_ref;
        let reason = machine.lacks("BootstrapConfigReady").map(CapiCondition::text).filter(|text| !text.is_empty());
        let reason = reason.map(|reason| format!(": {}", short(&reason))).unwrap_or_default();
        Some(match config.name.as_str() {
            "" => {
                let text = "its bootstrap data: spec.bootstrap names neither a Secret nor a config";
                place.wait_for(WaitCause::BootstrapSecret, text, None)
            }
            name => {
                let text = format!("its bootstrap data from {} {name}{reason}", config.kind);
                place.wait_for(WaitCause::Bootstrap, text, None)
            }
        })
    }

    fn infrastructure(&self, machine: &CapiObject, place: &WaitingObject<'_>) -> Vec<ExplainedWait> {
        let reference = &machine.spec.infrastructure_ref;
        let condition = machine.lacks("InfrastructureReady");
        let reason = condition.map(|one| format!(": {}", short(&one.text()))).unwrap_or_default();
        let what = format!("{} {}", reference.kind, reference.name);
        if reference.kind != Kind::MCMMachine.name() {
            let wait = || place.wait_for(WaitCause::OtherProvider, format!("{what} to be ready{reason}"), None);
            return condition.map(|_| wait()).into_iter().collect();
        }
        match self.objects.see(Kind::MCMMachine, &reference.name) {
            ObjectLookup::Present(object) => self.mcm_machine(object, place),
            ObjectLookup::Unknown => condition
                .map(|_| place.wait_for(WaitCause::Vm, format!("{what} to be ready{reason}"), None))
                .into_iter()
                .collect(),
            ObjectLookup::Missing if condition.is_some_and(|one| one.reason == "ObjectDeleted") => {
                let text = format!("{what}, which was deleted with its VM: delete the Machine");
                vec![place.wait_for(WaitCause::Obstacle, text, None)]
            }
            ObjectLookup::Missing => {
                vec![place.wait_for(WaitCause::Core, format!("{what}, which does not exist"), None)]
            }
        }
    }

    /// The waits of the VM of a Machine.
    fn mcm_machine(&self, object: &CapiObject, place: &WaitingObject<'_>) -> Vec<ExplainedWait> {
        self.provided(Kind::MCMMachine, object, place, |text| {
            match object.lacks(ProviderCondition::LoadBalancerRegistered.as_str()) {
                Some(registered) if is_of_load_balancer(object, registered) => {
                    let text = format!("the load balancer of the control plane: {}", short(&registered.text()));
                    vec![place.wait_for(WaitCause::LoadBalancer, text, None)]
                }
                _ => self.vm(object, place, text),
            }
        })
    }

    /// The waits of the VMs of an object of the provider. `others` gives them for reasons of `Ready` that name no cause.
    fn provided(
        &self,
        kind: Kind,
        object: &CapiObject,
        place: &WaitingObject<'_>,
        others: impl FnOnce(&str) -> Vec<ExplainedWait>,
    ) -> Vec<ExplainedWait> {
        if object.has_pause() {
            return self.paused(kind, object).into_iter().collect();
        }
        let Some(ready) = object.condition("Ready") else { return vec![unseen(kind, object, place)] };
        if ready.is_true() && !object.is_deleting() {
            return Vec::new();
        }
        let text = short(&ready.text());
        let cause = match ProviderReason::parse(&ready.reason).map(cause_of) {
            Some(WaitCause::LoadBalancer | WaitCause::Vm) | None => return others(&text),
            Some(cause) => cause,
        };
        let subject = if kind == Kind::MCMMachine { "its VM" } else { "its VMs" };
        let mut wait = place.wait_for(cause, completed(subject, &text), None);
        if cause == WaitCause::Bootstrap && place.object.spec.bootstrap.config_ref.name.is_empty() {
            wait.remedies = place.remedies_of(WaitCause::BootstrapSecret);
        }
        vec![wait]
    }

    /// The waits of the MCM Machine; without one, the condition of the MCMMachine.
    fn vm(&self, object: &CapiObject, place: &WaitingObject<'_>, text: &str) -> Vec<ExplainedWait> {
        let native = self.native(object);
        let waits = native.iter().flat_map(known_waits).collect::<Vec<_>>();
        if !waits.is_empty() {
            return waits;
        }
        let next = native.as_ref().and_then(|native| native.next.first());
        let text = match (next, object.is_deleting()) {
            (Some(step), _) => format!("its VM: next is to {}: {}", step.action, step.reason),
            (None, true) => format!("its VM to be deleted: {text}"),
            (None, false) => format!("its VM to be created: {text}"),
        };
        vec![place.wait_for(WaitCause::Vm, text, None)]
    }

    /// The verdict on the MCM Machine of an MCMMachine; `None` without a Machine.
    pub fn native(&self, object: &CapiObject) -> Option<ObjectAnswer> {
        let name = match object.status.machine_ref.name.as_str() {
            "" => object.name(),
            name => name,
        };
        self.facts.machines.contains_key(name).then(|| self.facts.answer(&self.facts.subject(MACHINE, name)))
    }

    fn health(&self, machine: &CapiObject, place: &WaitingObject<'_>) -> Vec<ExplainedWait> {
        let infrastructure = self.infrastructure(machine, place);
        if !infrastructure.is_empty() {
            return infrastructure;
        }
        let node = &machine.status.node_ref.name;
        if let Some(health) = machine.lacks("NodeHealthy") {
            // Core reads no Node of a worker before that.
            let cluster = self.objects.cluster_of(machine).known().filter(|_| !machine.is_control_plane());
            if let Some(wait) = cluster.and_then(|cluster| self.control_plane(cluster, place)) {
                return vec![wait];
            }
            let text = short(&health.text());
            return vec![match health.reason.as_str() {
                reason if NOT_LOOKED.contains(&reason) => place.wait_for(
                    WaitCause::Connection,
                    format!("the workload cluster to answer about Node {node}: {text}"),
                    None,
                ),
                _ => place.wait_for(WaitCause::NodeHealth, format!("Node {node} to become healthy: {text}"), None),
            }];
        }
        let available = machine.lacks("Available").filter(|one| one.reason == "WaitingForMinReadySeconds");
        if available.is_some() {
            let text = "it to be ready for minReadySeconds";
            return vec![place.wait_for(WaitCause::Machines, text, None)];
        }
        let ready = machine.lacks("Ready").filter(|one| !one.message.is_empty());
        ready
            .map(|one| place.wait_for(WaitCause::Core, format!("its conditions: {}", short(&one.text())), None))
            .into_iter()
            .collect()
    }

    fn deletion_of_machine(&self, machine: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(Kind::Machine, machine);
        let Some(deleting) = machine.condition("Deleting").filter(|one| one.is_true()) else {
            return vec![place.wait_for(WaitCause::Deletion, "Cluster API core to act on its deletion", None)];
        };
        let text = short(&deleting.text());
        let node = &machine.status.node_ref.name;
        let own = self.objects.see(Kind::MCMMachine, &machine.spec.infrastructure_ref.name).known();
        let wait = match deleting.reason.as_str() {
            "InternalError" if own.is_some_and(|own| !own.is_deleting()) && text.contains("delete MCMMachine") => {
                let name = &machine.spec.infrastructure_ref.name;
                let text = format!("the deletion of MCMMachine {name}, whose provider may not run: {text}");
                place.wait_for(WaitCause::Provider, text, None)
            }
            "WaitingForPreDrainHook" | "WaitingForPreTerminateHook" => place.wait_for(WaitCause::Hook, text, None),
            "DrainingNode" => {
                // The first line only names the start.
                let lines: Vec<&str> =
                    deleting.message.lines().skip(1).map(|line| line.trim_start_matches("* ")).collect();
                let pods = if lines.is_empty() { text } else { short(&lines.join(" ")) };
                place.wait_for(WaitCause::Drain, format!("Node {node} to be drained: {pods}"), machine.drain_ends())
            }
            "WaitingForVolumeDetach" => {
                place.wait_for(WaitCause::Volumes, format!("volumes of Node {node}: {text}"), None)
            }
            "WaitingForInfrastructureDeletion" => {
                return match own {
                    Some(object) => self.mcm_machine(object, &place),
                    None => vec![place.wait_for(WaitCause::Deletion, text, None)],
                };
            }
            _ => place.wait_for(WaitCause::Deletion, text, None),
        };
        vec![wait]
    }

    fn deletion(&self, kind: Kind, object: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(kind, object);
        let deleting = object.condition("Deleting").filter(|one| one.is_true());
        let text = match (deleting, object.lacks("Ready")) {
            (Some(one), _) | (None, Some(one)) => short(&one.text()),
            (None, None) => "its parts to be deleted".to_owned(),
        };
        vec![place.wait_for(WaitCause::Deletion, text, None)]
    }

    fn pool(&self, pool: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(Kind::MachinePool, pool);
        if let Some(cluster) = self.objects.cluster_of(pool).known().filter(|cluster| !cluster.is_provisioned()) {
            return vec![self.cluster_infrastructure(cluster, &place)];
        }
        let reference = &pool.spec.template.spec.infrastructure_ref;
        let own = (reference.kind == Kind::MCMMachinePool.name())
            .then(|| self.objects.see(Kind::MCMMachinePool, &reference.name).known())
            .flatten();
        let waits = own.map(|own| self.mcm_pool(own, &place)).unwrap_or_default();
        let (wanted, nodes) = (pool.spec.replicas.unwrap_or(1), pool.status.node_refs.len());
        let nodes = i32::try_from(nodes).unwrap_or(i32::MAX);
        if waits.is_empty() && nodes != wanted {
            let text = format!("{nodes} Nodes to be {wanted}");
            return vec![place.wait_for(WaitCause::Machines, text, None)];
        }
        waits
    }

    fn mcm_pool(&self, object: &CapiObject, place: &WaitingObject<'_>) -> Vec<ExplainedWait> {
        self.provided(Kind::MCMMachinePool, object, place, |text| {
            let natives: Vec<ExplainedWait> = self.deployments_of(object.name()).iter().flat_map(known_waits).collect();
            if natives.is_empty() { vec![place.wait_for(WaitCause::Vm, text, None)] } else { natives }
        })
    }

    /// The verdicts on the MCM MachineDeployments of an MCMMachinePool.
    pub fn deployments_of(&self, pool: &str) -> Vec<ObjectAnswer> {
        let is_of = |deployment: &&mcm_api::machine::MachineDeployment| {
            deployment.labels().get(labels::POOL).is_some_and(|name| name == pool)
        };
        let of_pool = self.facts.deployments.values().filter(is_of);
        of_pool.map(|one| self.facts.answer(&self.facts.subject(DEPLOYMENT, &one.name_any()))).collect()
    }

    fn readiness(&self, kind: Kind, object: &CapiObject) -> Vec<ExplainedWait> {
        let place = self.place(kind, object);
        match object.condition("Ready") {
            Some(ready) if ready.is_true() => Vec::new(),
            Some(ready) => {
                let text = completed("its infrastructure", &short(&ready.text()));
                vec![place.wait_for(infrastructure_cause(ready), text, None)]
            }
            None if object.status.initialization.provisioned => Vec::new(),
            None => vec![unseen(kind, object, &place)],
        }
    }

    /// How an object is, from what it waits for.
    pub fn verdict(waits: &[ExplainedWait]) -> ObjectVerdict {
        match waits {
            [] => ObjectVerdict::Settled,
            waits if waits.iter().any(|wait| wait.end == WaitEnd::User) => ObjectVerdict::Blocked,
            _ => ObjectVerdict::Waiting,
        }
    }
}

/// The waits of an MCM object without the hold of its provider: the object of the provider has the details.
fn known_waits(native: &ObjectAnswer) -> Vec<ExplainedWait> {
    native.waits.iter().filter(|wait| !wait.is_of_provider()).cloned().collect()
}

/// Only the availability of the control plane is unknown, and core computes it from the object that the Cluster does not have.
fn is_of_external_control_plane(cluster: &CapiObject, available: &CapiCondition) -> bool {
    let mut parts = available.message.lines().filter(|line| !line.starts_with(' '));
    cluster.spec.control_plane_ref.name.is_empty()
        && !available.message.is_empty()
        && parts.all(|part| part.trim_start_matches("* ").starts_with("ControlPlaneAvailable:"))
}

/// The wait for the provider, which has set no condition.
fn unseen(kind: Kind, object: &CapiObject, place: &WaitingObject<'_>) -> ExplainedWait {
    place.wait_for(WaitCause::Provider, format!("the provider to act on {} {}", kind.name(), object.name()), None)
}

/// The cause for which an MCMCluster is not ready: only a user creates a Secret or a class that is missing.
fn infrastructure_cause(ready: &CapiCondition) -> WaitCause {
    let cause = ProviderReason::parse(&ready.reason).map(cause_of);
    cause.filter(|cause| cause.guide().end == WaitEnd::User).unwrap_or(WaitCause::ClusterInfrastructure)
}

/// The load balancer is next: the VM exists, or is deleted only after it left.
fn is_of_load_balancer(object: &CapiObject, registered: &CapiCondition) -> bool {
    let has_vm = object.condition(ProviderCondition::VmProvisioned.as_str()).is_some_and(CapiCondition::is_true);
    has_vm && !object.is_deleting()
        || object.is_deleting() && registered.reason == ProviderReason::Deregistering.as_str()
}

/// The message of a condition, so that it completes "waits for".
fn completed(subject: &str, message: &str) -> String {
    match message.strip_prefix("Waiting for ") {
        Some(rest) => rest.to_owned(),
        None => format!("{subject}: {message}"),
    }
}

impl CapiObject {
    /// The infrastructure of a Cluster is or was complete.
    fn is_provisioned(&self) -> bool {
        self.status.initialization.infrastructure_provisioned || self.spec.infrastructure_ref.name.is_empty()
    }
}
