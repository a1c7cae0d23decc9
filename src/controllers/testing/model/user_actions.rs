//! User actions and faults.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::api_server::{BUDGETS, DEPLOYMENTS, Kind, MACHINES, NODES, SETS},
    autoscaler::Form,
    desired_state::POOL,
    faults::Rates,
    kubelet::{POD_LABEL, POD_NAMESPACE},
    world::{NAMESPACE, World},
};

impl World {
    /// One user action or fault.
    pub(super) fn happen(self: &Arc<Self>) {
        let mishaps = self.faults.rates().mishaps;
        if self.faults.per_mille(mishaps) {
            return self.suffer();
        }
        if self.areas.preservation && self.faults.one_in(3) {
            return self.ask_for_preservation();
        }
        if self.areas.external_writers && self.faults.one_in(3) {
            return self.write_as_another_client();
        }
        if self.areas.autoscaler && self.faults.one_in(3) {
            return self.choose_several();
        }
        if self.areas.freezes && self.faults.one_in(3) {
            return self.freeze_something();
        }
        if self.areas.orphans && self.faults.one_in(3) {
            return self.strand();
        }
        match self.faults.rng(|rng| rng.below(14)) {
            0 => self.delete_some_machine(),
            1 => self.delete_some_set(),
            2 => self.scale_down_as_autoscaler(),
            _ => self.change_something(),
        }
    }

    fn change_something(&self) {
        if self.control.get(&DEPLOYMENTS, NAMESPACE, POOL).is_none() {
            return;
        }
        let change = self.faults.rng(|rng| self.desired.lock().change(rng, self.areas));
        self.say(format!("user: {change}"));
        self.write_desired_state();
    }

    /// Writes the desired state into the deployment.
    pub(super) fn write_desired_state(&self) {
        let desired = self.desired.lock().clone();
        self.ledger.lock().desired_changed(&desired);
        if self.control.get(&DEPLOYMENTS, NAMESPACE, POOL).is_none() {
            return;
        }
        self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| deployment["spec"] = desired.spec()).unwrap();
        if desired.is_deleted {
            self.control.delete(&DEPLOYMENTS, NAMESPACE, POOL).unwrap();
        }
    }

    pub(super) fn delete_some_machine(&self) {
        if let Some(name) = self.some(&MACHINES) {
            self.say(format!("user: delete machine {name}"));
            self.control.delete(&MACHINES, NAMESPACE, &name).unwrap();
        }
    }

    /// Its Machines are deleted with it, and the deployment recreates it if needed.
    fn delete_some_set(&self) {
        if self.faults.rates().mishaps == 0 {
            return;
        }
        if let Some(name) = self.some(&SETS) {
            self.say(format!("user: delete set {name}"));
            self.control.delete(&SETS, NAMESPACE, &name).unwrap();
        }
    }

    fn scale_down_as_autoscaler(&self) {
        let has_replicas = self.desired.lock().replicas > 0;
        if let Some(name) = self.some(&MACHINES).filter(|_| has_replicas) {
            self.choose(&name, Form::WithTime);
        }
    }

    fn suffer(self: &Arc<Self>) {
        match self.faults.rng(|rng| rng.below(9)) {
            8 => self.block_evictions(),
            0 | 1 => self.kill_some_vm(),
            2..=4 => {
                if let Some(node) = self.some(&NODES) {
                    let for_seconds = self.faults.rng(|rng| (!rng.one_in(3)).then(|| rng.roll() % 900 + 1));
                    self.say(format!("node {node} ails for {for_seconds:?} s"));
                    self.ail(&node, for_seconds);
                }
            }
            5 => {
                if let Some(node) = self.some(&NODES) {
                    self.say(format!("user: delete node {node}"));
                    self.target.delete(&NODES, "", &node).unwrap();
                }
            }
            6 => self.break_some_machine(),
            _ => self.forget_history(),
        }
    }

    /// For a while a budget lets no pod go.
    fn block_evictions(self: &Arc<Self>) {
        let meta = json!({ "name": "budget", "namespace": POD_NAMESPACE });
        let budget = json!({
            "metadata": meta,
            "spec": { "selector": { "matchLabels": { POD_LABEL: POD_LABEL } } },
            "status": { "disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 0, "desiredHealthy": 1 },
        });
        if self.target.create(&BUDGETS, budget).is_err() {
            return;
        }
        self.say("a budget lets no pod go");
        let after = self.faults.millis(1000..600_000);
        self.later(after, |world| {
            world.say("pods may go again");
            world.target.delete(&BUDGETS, POD_NAMESPACE, "budget").unwrap();
        });
    }

    fn forget_history(&self) {
        let (server, kind) = match self.faults.rng(|rng| rng.below(4)) {
            0 => (&self.target, &NODES),
            1 => (&self.control, &SETS),
            _ => (&self.control, &MACHINES),
        };
        self.say(format!("watches of {} have to begin anew", kind.plural));
        server.forget_history(kind);
    }

    /// A user writes an undecodable Machine, and corrects it later.
    fn break_some_machine(self: &Arc<Self>) {
        let Some(name) = self.some(&MACHINES) else { return };
        self.say(format!("user: machine {name} cannot be read"));
        self.set_drain_timeout(&name, json!("2 hours"));
        let after = self.faults.millis(1000..120_000);
        self.later(after, move |world| {
            world.say(format!("user: machine {name} can be read again"));
            world.set_drain_timeout(&name, Value::Null);
        });
    }

    pub(super) fn set_drain_timeout(&self, machine: &str, timeout: Value) {
        let edited = self.control.edit(&MACHINES, NAMESPACE, machine, |machine| {
            if timeout.is_null() {
                machine["spec"].as_object_mut().unwrap().remove("drainTimeout");
            } else {
                machine["spec"]["drainTimeout"] = timeout;
            }
        });
        // It may be deleted.
        drop(edited);
    }

    pub(super) fn kill_some_vm(self: &Arc<Self>) {
        let ids: Vec<String> = self.cloud.lock().own().map(|(id, _)| id.clone()).collect();
        let Some(id) = self.faults.pick(&ids) else { return };
        self.kill_vm(&id);
    }

    pub(super) fn kill_vm(self: &Arc<Self>, id: &str) {
        let Some(server) = self.cloud.lock().vms.remove(id) else { return };
        self.ledger.lock().vm_is_gone(id);
        self.say(format!("the VM of node {} is killed", server.node));
        self.lose_contact(&server.node);
        if self.faults.one_in(3) {
            let after = self.faults.millis(1000..300_000);
            self.later(after, move |world| world.sweep(&server.node));
        }
    }

    pub(super) fn some(&self, kind: &Kind) -> Option<String> {
        let server = if kind == &NODES { &self.target } else { &self.control };
        let names: Vec<String> = server.all(kind).iter().map(|object| object.name().to_owned()).collect();
        self.faults.pick(&names)
    }

    /// Ends all faults and user actions.
    pub(super) fn calm_down(self: &Arc<Self>) {
        self.say("from now on all goes well");
        self.faults.set_rates(Rates::calm());
        self.control.set_paused(false);
        self.find_target();
        self.target.set_paused(false);
        self.faults.rng(|rng| self.desired.lock().settle_down(rng));
        self.write_desired_state();
        for node in self.target.all(&NODES) {
            self.recover(node.name());
        }
        self.collect_pods();
        if self.areas.external_writers || self.areas.freezes {
            self.tidy_machines();
        }
        if self.areas.in_place {
            self.help_updates();
        }
        if self.areas.orphans {
            self.sweep_orphan_vms();
        }
    }
}
