//! User actions and faults.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::api_server::{BUDGETS, DEPLOYMENTS, Kind, MACHINES, NODES, SETS},
    autoscaler::Form,
    kubelet::{POD_LABEL, POD_NAMESPACE},
    luck::Rates,
    wish::POOL,
    world::{NAMESPACE, World},
};

impl World {
    /// One user action or fault.
    pub(super) fn happen(self: &Arc<Self>) {
        let mishaps = self.luck.rates().mishaps;
        if self.luck.per_mille(mishaps) {
            return self.suffer();
        }
        if self.rooms.preservation && self.luck.one_in(3) {
            return self.ask_for_preservation();
        }
        if self.rooms.meddling && self.luck.one_in(3) {
            return self.meddle();
        }
        if self.rooms.autoscaler && self.luck.one_in(3) {
            return self.choose_several();
        }
        if self.rooms.freezes && self.luck.one_in(3) {
            return self.freeze_something();
        }
        if self.rooms.orphans && self.luck.one_in(3) {
            return self.strand();
        }
        match self.luck.dice(|dice| dice.below(14)) {
            0 => self.delete_some_machine(),
            1 => self.delete_some_set(),
            2 => self.scale_down_as_autoscaler(),
            _ => self.wish_anew(),
        }
    }

    fn wish_anew(&self) {
        if self.control.get(&DEPLOYMENTS, NAMESPACE, POOL).is_none() {
            return;
        }
        let change = self.luck.dice(|dice| self.wish.lock().change(dice, self.rooms));
        self.say(format!("user: {change}"));
        self.fulfil_wish();
    }

    /// Writes the wish into the deployment.
    pub(super) fn fulfil_wish(&self) {
        let wish = self.wish.lock().clone();
        self.ledger.lock().wished(&wish);
        if self.control.get(&DEPLOYMENTS, NAMESPACE, POOL).is_none() {
            return;
        }
        self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| deployment["spec"] = wish.spec()).unwrap();
        if wish.is_deleted {
            self.control.delete(&DEPLOYMENTS, NAMESPACE, POOL).unwrap();
        }
    }

    pub(super) fn delete_some_machine(&self) {
        if let Some(name) = self.some(&MACHINES) {
            self.say(format!("user: delete machine {name}"));
            self.control.delete(&MACHINES, NAMESPACE, &name).unwrap();
        }
    }

    /// Its Machines go with it, and the deployment makes it again if it has to.
    fn delete_some_set(&self) {
        if self.luck.rates().mishaps == 0 {
            return;
        }
        if let Some(name) = self.some(&SETS) {
            self.say(format!("user: delete set {name}"));
            self.control.delete(&SETS, NAMESPACE, &name).unwrap();
        }
    }

    fn scale_down_as_autoscaler(&self) {
        let has_replicas = self.wish.lock().replicas > 0;
        if let Some(name) = self.some(&MACHINES).filter(|_| has_replicas) {
            self.choose(&name, Form::WithTime);
        }
    }

    fn suffer(self: &Arc<Self>) {
        match self.luck.dice(|dice| dice.below(9)) {
            8 => self.block_evictions(),
            0 | 1 => self.kill_some_vm(),
            2..=4 => {
                if let Some(node) = self.some(&NODES) {
                    let for_seconds = self.luck.dice(|dice| (!dice.one_in(3)).then(|| dice.roll() % 900 + 1));
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
        let after = self.luck.millis(1000..600_000);
        self.later(after, |world| {
            world.say("pods may go again");
            world.target.delete(&BUDGETS, POD_NAMESPACE, "budget").unwrap();
        });
    }

    fn forget_history(&self) {
        let (server, kind) = match self.luck.dice(|dice| dice.below(4)) {
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
        let after = self.luck.millis(1000..120_000);
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
        let Some(id) = self.luck.pick(&ids) else { return };
        self.kill_vm(&id);
    }

    pub(super) fn kill_vm(self: &Arc<Self>, id: &str) {
        let Some(server) = self.cloud.lock().vms.remove(id) else { return };
        self.ledger.lock().vm_is_gone(id);
        self.say(format!("the VM of node {} is killed", server.node));
        self.lose_contact(&server.node);
        if self.luck.one_in(3) {
            let after = self.luck.millis(1000..300_000);
            self.later(after, move |world| world.sweep(&server.node));
        }
    }

    pub(super) fn some(&self, kind: &Kind) -> Option<String> {
        let server = if kind == &NODES { &self.target } else { &self.control };
        let names: Vec<String> = server.all(kind).iter().map(|object| object.name().to_owned()).collect();
        self.luck.pick(&names)
    }

    /// Ends all faults and user actions.
    pub(super) fn calm_down(self: &Arc<Self>) {
        self.say("from now on all goes well");
        self.luck.set_rates(Rates::calm());
        self.control.set_paused(false);
        self.find_target();
        self.target.set_paused(false);
        self.luck.dice(|dice| self.wish.lock().settle_down(dice));
        self.fulfil_wish();
        for node in self.target.all(&NODES) {
            self.recover(node.name());
        }
        self.collect_pods();
        if self.rooms.meddling || self.rooms.freezes {
            self.tidy_machines();
        }
        if self.rooms.in_place {
            self.help_updates();
        }
        if self.rooms.orphans {
            self.sweep_strays();
        }
    }
}
