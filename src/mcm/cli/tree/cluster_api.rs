//! The tree of an object of Cluster API, down to the Nodes.

use std::collections::BTreeSet;

use super::{
    branch::{self, NodeSurroundings, TreeBranch, plain},
    surroundings,
};
use mcm_insight::{
    cluster_api::{
        self, CapiFacts, ObjectLookup,
        chain::node_of,
        object::{CapiObject, Kind},
    },
    error::UsageError,
    read_only::ReadOnly,
    story::{ChainLink, NamespaceFacts, ObjectVerdict},
};
use mcm_rules::plan::SubjectRef;

/// Reads the objects of Cluster API, and grows the tree of one. With notes about what could not be read.
///
/// # Errors
/// There is no such object.
pub(super) async fn grow(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    kind: Kind,
    name: &str,
) -> Result<(Vec<TreeBranch>, Vec<String>), UsageError> {
    let objects = cluster_api::read(&cell.control, &cell.namespace).await;
    let world = CapiFacts { facts, objects: &objects };
    let below: Vec<SubjectRef> = world.mcm_machines_below(kind, name);
    let around = surroundings::read(cell, facts, &below).await;
    let tree = capi_object_tree(world, &around, kind, name)?;
    Ok((vec![tree], around.unread.into_iter().chain(objects.notes).collect()))
}

/// Grows the trees of all Clusters of the namespace, and of the MCM objects that belong to none. `None` without a Cluster.
pub(super) async fn grow_all(cell: &ReadOnly, facts: &NamespaceFacts) -> Option<(Vec<TreeBranch>, Vec<String>)> {
    if !cluster_api::has_clusters(&cell.control, &cell.namespace).await {
        return None;
    }
    let objects = cluster_api::read(&cell.control, &cell.namespace).await;
    let around = surroundings::read(cell, facts, &branch::roots(facts)).await;
    let trees = all(CapiFacts { facts, objects: &objects }, &around);
    Some((trees, around.unread.into_iter().chain(objects.notes).collect()))
}

/// The trees of all Clusters, and then of the MCM objects that are in none of these.
fn all(world: CapiFacts<'_>, around: &NodeSurroundings) -> Vec<TreeBranch> {
    let mut trees = CapiTreeBuilder { world, around }.all(Kind::Cluster, world.objects.all(Kind::Cluster));
    let mut shown = BTreeSet::new();
    trees.iter().for_each(|tree| collect_natives(tree, &mut shown));
    let is_left = |root: &SubjectRef| !shown.contains(&(root.kind.clone(), root.name.clone()));
    let left = branch::roots(world.facts).into_iter().filter(is_left);
    trees.extend(left.map(|root| branch::object_tree(world.facts, around, &root)));
    trees
}

/// Kind and name of each object without an API group of Cluster API.
fn collect_natives(tree: &TreeBranch, found: &mut BTreeSet<(String, String)>) {
    if tree.api_group.is_none() {
        found.insert((tree.kind.clone(), tree.name.clone()));
    }
    tree.children.iter().for_each(|child| collect_natives(child, found));
}

/// The tree of an object.
///
/// # Errors
/// There is no such object.
pub(super) fn capi_object_tree(
    world: CapiFacts<'_>,
    around: &NodeSurroundings,
    kind: Kind,
    name: &str,
) -> Result<TreeBranch, UsageError> {
    Ok(match world.objects.see(kind, name) {
        ObjectLookup::Present(object) => CapiTreeBuilder { world, around }.branch(kind, object),
        _ => {
            let answer = world.answer(kind, name)?;
            plain(&answer.object, &answer)
        }
    })
}

struct CapiTreeBuilder<'a> {
    world: CapiFacts<'a>,
    around: &'a NodeSurroundings,
}

impl CapiTreeBuilder<'_> {
    fn branch(&self, kind: Kind, object: &CapiObject) -> TreeBranch {
        let answer = self.world.brief(kind, object);
        let mut branch = plain(&answer.object, &answer);
        // The details of a state are in the answer of `mcm why`.
        branch.now = branch.now.split([',', '(']).next().unwrap_or_default().trim_end().to_owned();
        branch.children = self.children(kind, object);
        if kind != Kind::Cluster {
            branch.children.sort_by_key(|child| std::cmp::Reverse(child.verdict));
        }
        branch
    }

    fn all<'b>(&self, kind: Kind, objects: impl Iterator<Item = &'b CapiObject>) -> Vec<TreeBranch> {
        objects.map(|object| self.branch(kind, object)).collect()
    }

    fn children(&self, kind: Kind, object: &CapiObject) -> Vec<TreeBranch> {
        let (objects, name) = (self.world.objects, object.name());
        match kind {
            Kind::Cluster => self.of_cluster(object),
            Kind::MachineDeployment => {
                let sets = objects.owned(Kind::MachineSet, (kind.name(), name));
                let is_used = |set: &&CapiObject| set.spec.replicas != Some(0) || set.status.replicas > 0;
                self.all(Kind::MachineSet, sets.filter(is_used))
            }
            Kind::MachineSet => self.all(Kind::Machine, objects.owned(Kind::Machine, (kind.name(), name))),
            Kind::Machine => self.of_machine(object),
            Kind::MachinePool => {
                let infrastructure = &object.spec.template.spec.infrastructure_ref;
                self.referenced(Kind::MCMMachinePool, &infrastructure.kind, &infrastructure.name)
            }
            Kind::MCMMachinePool => {
                let natives = self.world.deployments_of(name).into_iter();
                natives.map(|native| branch::object_tree(self.world.facts, self.around, &native.object)).collect()
            }
            Kind::MCMMachine => {
                let native = self.world.native(object).map(|native| native.object);
                native.map(|native| branch::object_tree(self.world.facts, self.around, &native)).into_iter().collect()
            }
            Kind::MCMCluster => Vec::new(),
        }
    }

    fn of_cluster(&self, cluster: &CapiObject) -> Vec<TreeBranch> {
        let (objects, name) = (self.world.objects, cluster.name());
        let infrastructure = &cluster.spec.infrastructure_ref;
        let mut children = self.referenced(Kind::MCMCluster, &infrastructure.kind, &infrastructure.name);
        let machines = || objects.in_cluster(Kind::Machine, name);
        let control_plane = &cluster.spec.control_plane_ref;
        let of_control_plane = self.all(Kind::Machine, machines().filter(|machine| machine.is_control_plane()));
        if control_plane.name.is_empty() {
            children.extend(of_control_plane);
        } else {
            let initialized = cluster.status.initialization.control_plane_initialized;
            children.push(TreeBranch {
                kind: control_plane.kind.clone(),
                name: control_plane.name.clone(),
                now: if initialized { "initialized" } else { "not initialized" }.to_owned(),
                children: of_control_plane,
                ..TreeBranch::default()
            });
        }
        children.extend(self.all(Kind::MachineDeployment, objects.in_cluster(Kind::MachineDeployment, name)));
        let sets = objects.in_cluster(Kind::MachineSet, name);
        let alone = sets.filter(|set| set.owner(Kind::MachineDeployment.name()).is_none());
        children.extend(self.all(Kind::MachineSet, alone));
        children.extend(self.all(Kind::MachinePool, objects.in_cluster(Kind::MachinePool, name)));
        let is_owned = |machine: &CapiObject| {
            let owners = [Kind::MachineSet, Kind::MachinePool];
            machine.is_control_plane() || owners.iter().any(|kind| machine.owner(kind.name()).is_some())
        };
        children.extend(self.all(Kind::Machine, machines().filter(|machine| !is_owned(machine))));
        children
    }

    fn of_machine(&self, machine: &CapiObject) -> Vec<TreeBranch> {
        let infrastructure = &machine.spec.infrastructure_ref;
        let mut children = self.referenced(Kind::MCMMachine, &infrastructure.kind, &infrastructure.name);
        if let Some(node) = node_of(machine) {
            hang(&mut children, of_link(&node));
        }
        children
    }

    /// The infrastructure of an object, if it is of this provider; otherwise only its name.
    fn referenced(&self, own: Kind, kind: &str, name: &str) -> Vec<TreeBranch> {
        match self.world.objects.see(own, name).known().filter(|_| kind == own.name()) {
            Some(object) => vec![self.branch(own, object)],
            None if name.is_empty() => Vec::new(),
            None => vec![TreeBranch { kind: kind.to_owned(), name: name.to_owned(), ..TreeBranch::default() }],
        }
    }
}

/// Adds the Node of a Machine at the end of its branch, unless it is there.
fn hang(branches: &mut Vec<TreeBranch>, node: TreeBranch) {
    match branches.first_mut() {
        Some(first) if first.kind == node.kind => {}
        Some(first) => hang(&mut first.children, node),
        None => branches.push(node),
    }
}

fn of_link(link: &ChainLink) -> TreeBranch {
    let is_well = link.verdict == ObjectVerdict::Settled;
    TreeBranch {
        kind: link.kind.clone(),
        name: link.name.clone(),
        now: if is_well { link.state.clone() } else { "not healthy".to_owned() },
        why: if is_well { String::new() } else { link.state.clone() },
        ..TreeBranch::default()
    }
}

#[cfg(test)]
mod tests;
