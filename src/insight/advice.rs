//! The remedies of a wait: first those for the situation of the object, then those that every wait of its kind has. Pure.

use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    budget::BudgetState,
    family::{DeploymentFamily, is_frozen},
    plan::outcome::join_of,
    story::{CLASS, DEPLOYMENT, MACHINE, NamespaceFacts, ObjectRemedy, SET, budget_in, filled},
};
use mcm_api::{
    kinds::MACHINE_CLASSES,
    labels,
    machine::{Machine, MachineSet, PreserveMode},
};
use mcm_controllers::{machine_class::secret_refs, machine_deployment::revision_of};
use mcm_rules::plan::{
    SubjectRef, Wait, WaitKind,
    guide::{RemedyDanger, WaitRemedy},
    shell::{CommandCluster, resource_name, word},
};

/// The time after which a join is late, where no machine of the deployment has joined.
const LATE_JOIN: SignedDuration = SignedDuration::from_mins(5);
/// The least time of a join that is late.
const LEAST_LATE: SignedDuration = SignedDuration::from_mins(1);
/// The least similarity of the name of a class to a missing one.
const ALIKE: f64 = 0.8;
/// The beginning of the remedy that changes a budget.
const CHANGES_BUDGET: &str = "kubectl patch pdb ";
/// The beginning of the remedy that adds pods to a budget.
const SCALES_WORKLOAD: &str = "scale the workload up";
/// The beginning of the remedy that changes annotations of a Machine.
const ANNOTATES_MACHINE: &str = "kubectl annotate machines.";

impl NamespaceFacts {
    /// The remedies of a wait of an object.
    pub fn remedies_of(&self, wait: &Wait, object: &SubjectRef) -> Vec<ObjectRemedy> {
        let machine = self.machines.get(&object.name).filter(|_| object.kind == MACHINE);
        let node = machine.and_then(Machine::node_name);
        let is_leaving = machine.is_some_and(Machine::is_terminating);
        let mut found = match wait.kind {
            WaitKind::Class if is_leaving => machine.map(|machine| self.of_lost_class(machine)).unwrap_or_default(),
            WaitKind::Eviction => self.budget_of(wait).map(|budget| of_budget(budget, node)).unwrap_or_default(),
            WaitKind::Hold => {
                let park = self.park().filter(|park| park.why == wait.text);
                park.map(|park| park.remedy.clone()).into_iter().collect()
            }
            WaitKind::Preservation => machine.and_then(of_preserving_node).into_iter().collect(),
            WaitKind::ScaleUpBlocked => {
                let set = self.sets.get(&object.name).filter(|set| object.kind == SET && is_frozen(set));
                set.map(|_| unfreeze(&object.name, &self.namespace)).into_iter().collect()
            }
            _ => self.of_new_template(wait.kind, object).unwrap_or_default(),
        };
        match wait.kind {
            WaitKind::Class => found.extend(self.of_missing_class(object)),
            WaitKind::Secret => found.extend(self.of_missing_key(wait, object)),
            _ => {}
        }
        let has_budget = self.budget_of(wait).is_some();
        let is_uncounted = self.budget_of(wait).is_some_and(BudgetState::counts_none);
        let is_kept_by_node = machine.is_some_and(|machine| preserving_node(machine).is_some());
        // The VM of an MCMMachine stays when its MCM Machine is deleted.
        let is_apt = |remedy: &&WaitRemedy| {
            !(self.is_provided(object) && remedy.text.starts_with("kubectl delete ")
                || has_budget && remedy.text.starts_with(CHANGES_BUDGET)
                || is_uncounted && remedy.text.starts_with(SCALES_WORKLOAD)
                || is_kept_by_node && remedy.text.starts_with(ANNOTATES_MACHINE))
        };
        let guide = wait.kind.guide();
        found
            .extend(guide.remedies.iter().filter(is_apt).filter_map(|remedy| filled(remedy, object, node, &wait.text)));
        if wait.kind == WaitKind::Paused {
            found.extend(self.of_paused_rollout(object));
        }
        let mut placed: Vec<ObjectRemedy> = Vec::new();
        for remedy in found.into_iter().map(|remedy| remedy.placed(&self.place)) {
            if !placed.contains(&remedy) {
                placed.push(remedy);
            }
        }
        placed
    }

    /// The budget that a wait names, if it was read.
    pub fn budget_of(&self, wait: &Wait) -> Option<&BudgetState> {
        let (namespace, name) = budget_in(&wait.text).filter(|_| wait.kind == WaitKind::Eviction)?;
        self.budgets.get(&format!("{namespace}/{name}"))
    }

    /// Remedies where the machines of a new template fail, and those of a former one run: no other wait needs the new template.
    fn of_new_template(&self, kind: WaitKind, object: &SubjectRef) -> Option<Vec<ObjectRemedy>> {
        use WaitKind::{Class, DriverRetry, MachineWrite, NodeJoin, NodeTemplate, Secret};
        if !matches!(kind, Class | DriverRetry | MachineWrite | NodeJoin | NodeTemplate | Secret) {
            return None;
        }
        let family = self.family_of(object)?;
        let (deployment, new) = (family.deployment, family.new_set());
        let new_machines = new.map(|set| self.machines_of_set(&set.name_any())).unwrap_or_default();
        let is_new = match object.kind.as_str() {
            MACHINE => {
                new_machines.iter().any(|machine| machine.name_any() == object.name && !machine.is_terminating())
            }
            SET => new.is_some_and(|set| set.name_any() == object.name),
            _ => true,
        };
        let fails = !new_machines.iter().any(|machine| machine.is_available());
        let may_be_template = || kind != NodeJoin || self.is_late(&family, object);
        if !is_new || !fails || !may_be_template() || deployment.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let former = self.running_set(&family, new)?;
        let class = &former.spec.template.spec.class.name;
        let shares_class = *class == deployment.spec.template.spec.class.name;
        // A return to a template is refused if its class does not exist or cannot be read.
        let is_class_usable = self.classes.contains_key(class) || self.is_unread(MACHINE_CLASSES.plural);
        if !is_class_usable || kind == WaitKind::Secret && shares_class {
            return None;
        }
        let (name, namespace) = (deployment.name_any(), &self.namespace);
        let is_default =
            new.is_some() && family.of_revision(None).is_some_and(|set| set.name_any() == former.name_any());
        let revision = if is_default { String::new() } else { format!(" --to-revision {}", revision_of(former)) };
        let mut found = vec![ObjectRemedy {
            text: format!("mcm rollout undo {name} -n {namespace}{revision}"),
            note: "returns to the template whose machines run; those of the new one, none of which is available, are deleted",
            danger: RemedyDanger::ReplacesMachines,
            cluster: CommandCluster::Control,
        }];
        if !deployment.spec.paused {
            found.push(safe(
                format!("mcm rollout pause {name} -n {namespace}"),
                "replaces no further machine while you correct the template",
            ));
        }
        Some(found)
    }

    /// The end of a rollout that is paused half-way.
    fn of_paused_rollout(&self, object: &SubjectRef) -> Option<ObjectRemedy> {
        let family = self.family_of(object)?;
        let new = family.new_set()?;
        let former = self.running_set(&family, Some(new))?;
        if self.machines_of_set(&new.name_any()).is_empty()
            || !self.classes.contains_key(&former.spec.template.spec.class.name)
        {
            return None;
        }
        Some(ObjectRemedy {
            text: format!("mcm rollout abort {} -n {}", family.deployment.name_any(), self.namespace),
            note: "returns to the template of the old machines that run, and ends the pause",
            danger: RemedyDanger::ReplacesMachines,
            cluster: CommandCluster::Control,
        })
    }

    fn is_unread(&self, kind: &str) -> bool {
        self.unread.iter().any(|unread| unread == kind)
    }

    /// The deployment of an object with its sets.
    fn family_of(&self, object: &SubjectRef) -> Option<DeploymentFamily<'_>> {
        match object.kind.as_str() {
            DEPLOYMENT => self.family(&object.name),
            SET | MACHINE => {
                self.family(&self.known(object).owners.iter().find(|owner| owner.kind == DEPLOYMENT)?.name)
            }
            _ => None,
        }
    }

    /// The former set with the most available machines, the latest of several.
    pub fn running_set<'a>(&self, family: &DeploymentFamily<'a>, new: Option<&MachineSet>) -> Option<&'a MachineSet> {
        let new = new.map(|set| set.name_any());
        let former = family.sets.iter().filter(|set| Some(set.name_any()) != new && revision_of(set) > 0);
        let running =
            |set: &MachineSet| self.machines_of_set(&set.name_any()).iter().filter(|one| one.is_available()).count();
        former.copied().filter(|set| running(set) > 0).max_by_key(|set| (running(set), revision_of(set)))
    }

    /// The Node of a Machine takes much longer to join than those of its deployment did.
    fn is_late(&self, family: &DeploymentFamily<'_>, object: &SubjectRef) -> bool {
        let Some(created) = self.machines.get(&object.name).and_then(ResourceExt::creation_timestamp) else {
            return false;
        };
        let machines: Vec<&Machine> =
            family.sets.iter().flat_map(|set| self.machines_of_set(&set.name_any())).collect();
        let usual = join_of(&machines).and_then(|join| SignedDuration::try_from(join).ok());
        let late = usual.map_or(LATE_JOIN, |usual| usual.saturating_mul(2).max(LEAST_LATE));
        self.now.duration_since(created.0) > late
    }

    /// The same of a Machine, whose deployment is looked up.
    pub fn is_late_join(&self, machine: &SubjectRef) -> bool {
        self.family_of(machine).is_some_and(|family| self.is_late(&family, machine))
    }

    /// The class that a deployment meant, where its class does not exist.
    fn of_missing_class(&self, object: &SubjectRef) -> Option<ObjectRemedy> {
        let family = self.family_of(object)?;
        let missing = &family.deployment.spec.template.spec.class.name;
        if self.classes.contains_key(missing)
            || self.unreadable.iter().any(|one| one.kind == CLASS && one.name == *missing)
        {
            return None;
        }
        let alike = self.classes.keys().map(|known| (strsim::jaro_winkler(known, missing), known));
        let (_, meant) = alike.filter(|(score, _)| *score > ALIKE).max_by(|one, other| one.0.total_cmp(&other.0))?;
        let patch = json!({ "spec": { "template": { "spec": { "class": { "name": meant } } } } }).to_string();
        let (kind, name) = (resource_name(DEPLOYMENT), family.deployment.name_any());
        Some(ObjectRemedy {
            text: format!("kubectl patch {kind} {name} -n {} --type merge -p {}", self.namespace, word(&patch)),
            note: "uses the class whose name is most alike",
            danger: RemedyDanger::ReplacesMachines,
            cluster: CommandCluster::Control,
        })
    }

    /// A Machine is deleted, and its class does not exist any more.
    fn of_lost_class(&self, machine: &Machine) -> Vec<ObjectRemedy> {
        let (name, namespace, class) = (machine.name_any(), &self.namespace, &machine.spec.class.name);
        if self.classes.contains_key(class) {
            return Vec::new();
        }
        let leaves = if machine.spec.provider_id.is_empty() { "" } else { " --leave-vm" };
        vec![
            safe(format!("create MachineClass {class} in namespace {namespace} again"), "the VM is deleted then"),
            ObjectRemedy {
                text: format!("mcm machine forget {name} -n {namespace}{leaves}"),
                note: "gives the Machine up: if it has a VM, you have to delete that in the cloud",
                danger: RemedyDanger::ReplacesMachines,
                cluster: CommandCluster::Control,
            },
        ]
    }

    /// Remedies where a Secret exists and has no user data.
    fn of_missing_key(&self, wait: &Wait, object: &SubjectRef) -> Vec<ObjectRemedy> {
        let class = match object.kind.as_str() {
            MACHINE => self.machines.get(&object.name).map(|machine| &machine.spec.class.name),
            CLASS => Some(&object.name),
            _ => None,
        };
        let Some(class) = class.and_then(|class| self.classes.get(class)) else { return Vec::new() };
        if !wait.text.contains("the key ") {
            return Vec::new();
        }
        let add =
            |secret: &str| safe(format!("add the key userData to Secret {secret} in namespace {}", self.namespace), "");
        let show = |secret: &str| {
            let text = format!("kubectl describe secret {secret} -n {}", self.namespace);
            safe(text, "shows its keys without their values")
        };
        let secrets: Vec<&str> = secret_refs(class).map(|secret| secret.name.as_str()).collect();
        secrets.iter().take(1).map(|secret| add(secret)).chain(secrets.iter().map(|secret| show(secret))).collect()
    }
}

/// The Node whose annotation decides about the preservation of a Machine, with its value: it takes precedence over the annotation of
/// the Machine, which the controller removes.
pub fn preserving_node(machine: &Machine) -> Option<(&str, &str)> {
    let value = machine.annotations().get(labels::LAST_NODE_PRESERVE).filter(|value| !value.is_empty())?;
    Some((machine.node_name()?, value.as_str()))
}

/// The command that requests the preservation of the Machine of a Node, for the target cluster.
pub fn preserve_node_command(node: &str, mode: PreserveMode) -> String {
    format!("kubectl annotate nodes {node} {}={} --overwrite", labels::PRESERVE, mode.as_str())
}

/// The command that ends the freeze of a set.
pub fn unfreeze(set: &str, namespace: &str) -> ObjectRemedy {
    ObjectRemedy {
        text: format!("mcm unfreeze machineset/{set} -n {namespace}"),
        note: "a manager does so itself at its next overshoot check, if the set has few enough machines",
        danger: RemedyDanger::ReplacesMachines,
        cluster: CommandCluster::Control,
    }
}

fn of_preserving_node(machine: &Machine) -> Option<ObjectRemedy> {
    let (node, _) = preserving_node(machine)?;
    Some(ObjectRemedy {
        text: preserve_node_command(node, PreserveMode::Never),
        note: "with the kubeconfig of the target cluster: ends its preservation: a failed Machine is replaced",
        danger: RemedyDanger::ReplacesMachines,
        cluster: CommandCluster::Target,
    })
}

/// Remedies for a budget that allows no eviction from a Node.
pub fn of_budget(budget: &BudgetState, node: Option<&str>) -> Vec<ObjectRemedy> {
    let BudgetState { namespace, name, amounts, .. } = budget;
    let patch = |spec: serde_json::Value| {
        format!("{CHANGES_BUDGET}{name} -n {namespace} --type merge -p {}", word(&json!({ "spec": spec }).to_string()))
    };
    if budget.counts_none() {
        return of_uncounted_pods(budget, node);
    }
    let mut found: Vec<ObjectRemedy> = budget
        .unready
        .iter()
        .map(|pod| {
            let text = format!("kubectl describe pod {} -n {namespace}", pod.name);
            safe_in_target(text, "with the kubeconfig of the target cluster: why it is not Ready, which keeps the others from being evicted")
        })
        .collect();
    let is_here = budget.unready.iter().any(|pod| pod.node.as_deref() == node && node.is_some());
    if is_here && !budget.evicts_unready && budget.healthy < budget.desired {
        found.push(ObjectRemedy {
            text: patch(json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" })),
            note: "with the kubeconfig of the target cluster: lets pods be evicted that are not Ready",
            danger: RemedyDanger::KillsPods,
            cluster: CommandCluster::Target,
        });
    }
    let change = json!({ "minAvailable": null, "maxUnavailable": 1 });
    if budget.is_never() && budget.unready.is_empty() && *amounts != change {
        found.push(ObjectRemedy {
            text: patch(change),
            note: "with the kubeconfig of the target cluster: lets pods be evicted one after the other",
            danger: RemedyDanger::KillsPods,
            cluster: CommandCluster::Target,
        });
        found.push(safe_in_target(
            patch(amounts.clone()),
            "with the kubeconfig of the target cluster: restores the budget afterwards",
        ));
    }
    found
}

/// Remedies for a budget that counts none of its pods: no amount allows an eviction.
fn of_uncounted_pods(budget: &BudgetState, node: Option<&str>) -> Vec<ObjectRemedy> {
    let on_node = node.map(|node| format!(" --field-selector spec.nodeName={node}")).unwrap_or_default();
    let list = safe_in_target(
        format!("kubectl get pods -n {}{on_node}", budget.namespace),
        "with the kubeconfig of the target cluster: shows the pods, of which the budget counts none without a controller",
    );
    let delete = ObjectRemedy {
        text: format!("delete the pods of budget {} by hand", budget.title()),
        note: "they have no controller: nothing creates them again",
        danger: RemedyDanger::KillsPods,
        cluster: CommandCluster::Control,
    };
    vec![list, delete]
}

const fn safe(text: String, note: &'static str) -> ObjectRemedy {
    ObjectRemedy { text, note, danger: RemedyDanger::Safe, cluster: CommandCluster::Control }
}

const fn safe_in_target(text: String, note: &'static str) -> ObjectRemedy {
    ObjectRemedy { text, note, danger: RemedyDanger::Safe, cluster: CommandCluster::Target }
}

#[cfg(test)]
mod tests;
