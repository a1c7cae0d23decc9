//! Users and programs that change objects of other controllers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::api_server::{DEPLOYMENTS, MACHINES, NODES, SETS, ServerObject},
    desired_state::POOL,
    world::{NAMESPACE, World},
};
use mcm_api::labels;

impl World {
    pub(super) fn write_as_another_client(self: &Arc<Self>) {
        match self.faults.rng(|rng| rng.below(11)) {
            0 | 1 => self.set_some_priority(),
            2 | 3 => self.scale_down_as_old_autoscaler(),
            4 => self.take_some_machine_out(),
            5 => self.scale_some_set(),
            6 => self.edit_some_node(),
            7 => self.strip_some_node(),
            8 => self.break_the_spec(),
            9 => self.strip_some_set(),
            _ => self.force_some_deletion(),
        }
    }

    fn set_some_priority(&self) {
        let Some(name) = self.some(&MACHINES) else { return };
        let priority = self.faults.pick(&["1", "2", "5", "-1", "high"]).unwrap();
        self.say(format!("user: priority of machine {name}: {priority}"));
        self.edit_machine(&name, |machine| {
            machine["metadata"]["annotations"][labels::PRIORITY] = json!(priority);
        });
    }

    /// As autoscalers did it once: the lowest priority, or a name without a time, and one replica less.
    fn scale_down_as_old_autoscaler(&self) {
        let has_replicas = self.desired.lock().replicas > 0;
        let Some(name) = self.some(&MACHINES).filter(|_| has_replicas) else { return };
        self.say(format!("old autoscaler: without machine {name}"));
        self.desired.lock().replicas -= 1;
        if self.faults.one_in(2) {
            self.edit_machine(&name, |machine| machine["metadata"]["annotations"][labels::PRIORITY] = json!("1"));
            return self.write_desired_state();
        }
        self.write_desired_state();
        // The user may have deleted it.
        drop(self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| {
            deployment["metadata"]["annotations"][labels::TRIGGER_DELETION] = json!(name);
        }));
    }

    /// Its set no longer selects it. Later it is selected again or deleted.
    fn take_some_machine_out(self: &Arc<Self>) {
        let Some(name) = self.some(&MACHINES) else { return };
        self.say(format!("user: take machine {name} out of its set"));
        self.edit_machine(&name, |machine| machine["metadata"]["labels"][labels::DEPLOYMENT_NAME] = json!("another"));
        let after = self.faults.millis(1000..300_000);
        if self.faults.one_in(2) {
            self.later(after, move |world| world.put_back(&name));
        }
    }

    fn put_back(&self, machine: &str) {
        self.ledger.lock().made_by_hand(1);
        self.say(format!("user: put machine {machine} back"));
        self.edit_machine(machine, |machine| machine["metadata"]["labels"][labels::DEPLOYMENT_NAME] = json!(POOL));
    }

    /// The deployment takes it back.
    fn scale_some_set(&self) {
        let Some(name) = self.some(&SETS) else { return };
        let change = self.faults.rng(|rng| rng.within(-2..3));
        self.say(format!("user: {change} replicas for set {name}"));
        self.ledger.lock().scaled_by_hand(usize::try_from(change.abs()).unwrap());
        let edited = self.control.edit(&SETS, NAMESPACE, &name, |set| {
            let replicas = set["spec"]["replicas"].as_i64().unwrap_or_default();
            set["spec"]["replicas"] = json!((replicas + change).max(0));
        });
        edited.unwrap();
    }

    /// Changes to fields from the Machine's template are corrected.
    fn edit_some_node(&self) {
        let Some(name) = self.some(&NODES) else { return };
        self.say(format!("user: another label and no machine for node {name}"));
        let edited = self.target.edit(&NODES, "", &name, |node| {
            node["metadata"]["labels"]["pool"] = json!("by-hand");
            node["metadata"]["labels"].as_object_mut().unwrap().remove(labels::MACHINE_NAME);
        });
        edited.unwrap();
    }

    fn strip_some_node(&self) {
        let Some(name) = self.some(&NODES) else { return };
        self.say(format!("user: remove the finalizers and annotations of node {name}"));
        let edited = self.target.edit(&NODES, "", &name, |node| {
            let meta = node["metadata"].as_object_mut().unwrap();
            meta.remove("finalizers");
            meta.remove("annotations");
        });
        edited.unwrap();
    }

    fn strip_some_set(&self) {
        let Some(name) = self.some(&SETS) else { return };
        self.say(format!("user: remove the finalizers of set {name}"));
        let edited = self.control.edit(&SETS, NAMESPACE, &name, |set| {
            set["metadata"].as_object_mut().unwrap().remove("finalizers");
        });
        edited.unwrap();
    }

    /// The next change by the user corrects it.
    fn break_the_spec(&self) {
        self.say("user: a strategy that does not exist");
        let edited = self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| {
            deployment["spec"]["strategy"]["type"] = json!("Sometimes");
        });
        // It may be deleted.
        drop(edited);
    }

    fn force_some_deletion(&self) {
        let Some(name) = self.some(&MACHINES) else { return };
        self.say(format!("user: force the deletion of machine {name}"));
        self.edit_machine(&name, |machine| machine["metadata"]["labels"][labels::FORCE_DELETION] = json!(labels::TRUE));
        self.control.delete(&MACHINES, NAMESPACE, &name).unwrap();
    }

    fn edit_machine(&self, name: &str, change: impl FnOnce(&mut Value)) {
        // It may be deleted.
        drop(self.control.edit(&MACHINES, NAMESPACE, name, change));
    }

    /// Deletes Machines that were taken out or that no set selects. The garbage collector deletes those of deleted
    /// sets.
    pub(super) fn tidy_machines(&self) {
        let all_go = self.desired.lock().is_deleted;
        let sets = self.control.all(&SETS);
        for machine in self.control.all(&MACHINES) {
            let metadata = &machine.value["metadata"];
            let is_stray = match metadata["ownerReferences"][0]["uid"].as_str() {
                Some(owner) => sets.iter().all(|set| set.uid() != owner),
                None => all_go || !sets.iter().any(|set| !set.is_terminating() && selects(set, &metadata["labels"])),
            };
            if metadata["labels"][labels::DEPLOYMENT_NAME] != POOL || is_stray {
                self.say(format!("user: delete machine {}", machine.name()));
                self.control.delete(&MACHINES, NAMESPACE, machine.name()).unwrap();
            }
        }
    }
}

fn selects(set: &ServerObject, of_machine: &Value) -> bool {
    let wanted = set.value["spec"]["selector"]["matchLabels"].as_object();
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| of_machine[key] == *value))
}
