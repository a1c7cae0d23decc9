use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::{MachinePoolMember, McmMachinePoolSession, Snapshot, apply::MCMMachinePools, members, shares};
use crate::{
    object::{
        observe::{owner, owner_of, view},
        view::{ObjectView, OwnerView},
    },
    provider::{
        observe::{cluster_name, infrastructure, pool_of},
        workload::target_of,
    },
};
use mcm_api::machine::{Machine, MachineDeployment};
use mcm_controllers::{
    machine, machine_set,
    object::owner::{controller_of, is_controlled_by},
};
use mcm_conversion::types::{Cluster, MCMMachinePool};
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache},
    reconcile::SnapshotReader,
    trust::CacheTrust,
};

impl SnapshotReader for MCMMachinePools {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = McmMachinePoolSession;

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, (): &(), session: &McmMachinePoolSession) -> Option<Snapshot> {
        let object = self.objects.cache.get(key)?;
        let beside = |name: &str| Key::new(&key.namespace, name);
        let owner = match owner_of(&object.metadata, "MachinePool") {
            Some(reference) => OwnerView::Named(owner(&self.pools.cache, &object.metadata, reference)),
            None => OwnerView::None,
        };
        let of_owner = owner.known().map(|pool| pool.spec.cluster_name.clone());
        let cluster = match cluster_name(&object.metadata).map(str::to_owned).or(of_owner) {
            Some(name) => view(&self.clusters.cache, &beside(&name)),
            None => ObjectView::Missing,
        };
        let infrastructure = infrastructure(&self.infrastructures.cache, &cluster);
        let shares = owner.known().map(|pool| shares::pool_shares(&object, pool)).unwrap_or_default();
        let wanted: BTreeSet<String> =
            shares.iter().map(|share| shares::class_name(&object, &share.zone, &infrastructure)).collect();
        let needed: BTreeSet<&str> = shares.iter().map(|share| share.name.as_str()).collect();
        let deployments = self.deployments(&object, &needed);
        let machines = self.machines(&object, &deployments);
        let used_classes = self.used_classes(&deployments, &machines);
        let named = owner.known().and_then(|pool| pool.spec.template.spec.bootstrap.data_secret_name.clone());
        let bootstrap = match named.map(|name| view(&self.secrets.cache, &beside(&name))) {
            Some(ObjectView::Present(_)) => ObjectView::Present(().into()),
            Some(ObjectView::Unknown) => ObjectView::Unknown,
            Some(ObjectView::Missing) | None => ObjectView::Missing,
        };
        let uid = cluster.known().and_then(|cluster| cluster.uid());
        Some(Snapshot {
            classes: self.classes(&object, wanted.iter().chain(&used_classes)),
            members: self.members(&object, &machines),
            unreadable_machines: unreadable(&self.natives.cache, key),
            unreadable_deployments: unreadable(&self.deployments.cache, key),
            nodes_unknown: self.nodes_unknown(&cluster),
            is_resumed: uid.is_some_and(|uid| self.resumed.contains(&uid)),
            obstacle: self.managers.namespace_obstacle(&key.namespace),
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
            object,
            owner,
            cluster,
            infrastructure,
            used_classes,
            deployments,
            machines,
            bootstrap,
            session: session.clone(),
        })
    }
}

impl MCMMachinePools {
    fn deployments(
        &self,
        object: &MCMMachinePool,
        needed: &BTreeSet<&str>,
    ) -> BTreeMap<String, Arc<MachineDeployment>> {
        let name = object.name_any();
        let shown = &object.spec.machine_deployment_ref.name;
        let is_about = |deployment: &Arc<MachineDeployment>| {
            let own = deployment.name_any();
            deployment.namespace() == object.namespace()
                && (pool_of(&deployment.metadata) == Some(&name) || needed.contains(own.as_str()) || own == *shown)
        };
        let all = self.deployments.cache.all().into_iter().filter(is_about);
        all.map(|deployment| (deployment.name_any(), deployment)).collect()
    }

    /// The Machines with the label, of any set; for a deployment that is only shown, the Machines of its sets.
    fn machines(
        &self,
        object: &MCMMachinePool,
        deployments: &BTreeMap<String, Arc<MachineDeployment>>,
    ) -> BTreeMap<String, Arc<Machine>> {
        let (pool, shown) = (object.name_any(), &object.spec.machine_deployment_ref.name);
        let machines: Vec<Arc<Machine>> = if shown.is_empty() {
            let all = deployments.keys().flat_map(|name| self.natives.cache.by(machine::BY_DEPLOYMENT, name));
            let is_own = |machine: &Arc<Machine>| {
                machine.namespace() == object.namespace() && pool_of(&machine.metadata) == Some(&pool)
            };
            all.filter(is_own).collect()
        } else {
            let uid = deployments.get(shown).and_then(|deployment| deployment.uid());
            let sets = uid.map(|uid| self.sets.cache.by(machine_set::BY_CONTROLLER, &uid)).unwrap_or_default();
            let uids = sets.iter().filter_map(|set| set.uid());
            uids.flat_map(|uid| self.natives.cache.by(machine::BY_CONTROLLER, &uid)).collect()
        };
        machines.into_iter().map(|machine| (machine.name_any(), machine)).collect()
    }

    fn used_classes(
        &self,
        deployments: &BTreeMap<String, Arc<MachineDeployment>>,
        machines: &BTreeMap<String, Arc<Machine>>,
    ) -> BTreeSet<String> {
        let uids = deployments.values().filter_map(|deployment| deployment.uid());
        let sets: Vec<_> = uids.flat_map(|uid| self.sets.cache.by(machine_set::BY_CONTROLLER, &uid)).collect();
        let of_sets = sets.iter().map(|set| &set.spec.template.spec.class.name);
        let of_deployments = deployments.values().map(|deployment| &deployment.spec.template.spec.class.name);
        let of_machines = machines.values().map(|machine| &machine.spec.class.name);
        of_sets.chain(of_deployments).chain(of_machines).filter(|name| !name.is_empty()).cloned().collect()
    }

    fn classes<'a>(
        &self,
        object: &MCMMachinePool,
        named: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, ObjectView<mcm_api::machine::MachineClass>> {
        let cache = &self.classes.cache;
        let uid = object.uid().unwrap_or_default();
        let own = cache.all().into_iter().filter(|class| is_controlled_by(&class.metadata, &uid));
        let mut classes: BTreeMap<_, _> = own.map(|class| (class.name_any(), ObjectView::Present(class))).collect();
        for name in named {
            let seen = view(cache, &Key::beside(&object.metadata, name));
            classes.insert(name.clone(), seen);
        }
        classes
    }

    fn members(
        &self,
        object: &MCMMachinePool,
        machines: &BTreeMap<String, Arc<Machine>>,
    ) -> BTreeMap<String, MachinePoolMember> {
        if object.spec.machine_pool_machines.is_empty() {
            return BTreeMap::new();
        }
        let pool = object.name_any();
        let is_about = |name: &str, meta: &ObjectMeta| pool_of(meta) == Some(&pool) || machines.contains_key(name);
        let all = self.members.cache.all().into_iter();
        let own = all.filter(|one| one.namespace() == object.namespace() && is_about(&one.name_any(), &one.metadata));
        let member = |object: Arc<mcm_conversion::types::MCMMachine>| {
            let machine = view(&self.machines.cache, &Key::from_meta(&object.metadata));
            (object.name_any(), MachinePoolMember { machine: members::machine_of(&object, machine), object })
        };
        own.map(member).collect()
    }

    fn nodes_unknown(&self, cluster: &ObjectView<Cluster>) -> Option<String> {
        let key = Key::from_meta(&cluster.known()?.metadata);
        if let Some(problem) = self.workloads.attempt(&key).and_then(|attempt| attempt.problem) {
            return Some(problem);
        }
        let Some(target) = self.targets.get(&target_of(&key)) else {
            return Some("the workload cluster is not connected yet".to_owned());
        };
        match target.nodes.cache.trust() {
            CacheTrust::Trusted if target.nodes.cache.is_synced() => None,
            CacheTrust::Untrusted { .. } => Some("the API server of the workload cluster does not answer".to_owned()),
            CacheTrust::Trusted | CacheTrust::Unknown { .. } => {
                Some("the Nodes of the workload cluster have not been read yet".to_owned())
            }
        }
    }
}

/// Names of objects of a pool that cannot be decoded.
fn unreadable<K: CacheableKind>(cache: &ObjectCache<K>, pool: &Key) -> Vec<String> {
    let all = cache.unreadable().into_iter();
    let is_own = |meta: &ObjectMeta| {
        let is_controller =
            controller_of(meta).is_some_and(|one| one.kind == "MCMMachinePool" && one.name == pool.name);
        meta.namespace.as_deref() == Some(&pool.namespace) && (pool_of(meta) == Some(&pool.name) || is_controller)
    };
    all.filter(|one| is_own(&one.meta)).filter_map(|one| one.meta.name).collect()
}
