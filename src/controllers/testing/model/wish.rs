//! What the user wishes, and the bounds that follow from it, worked out anew: the code under test has no part in them.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    super::api_server::{ApiServer, CLASSES, DEPLOYMENTS, SECRETS},
    cloud::PROVIDER,
    dice::Dice,
    world::NAMESPACE,
};
use crate::api::labels;

pub(super) const POOL: &str = "pool";
const TEMPLATES: i64 = 3;
/// Every class refers to it.
const SECRET: &str = "secret";

#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub replicas: i32,
    pub is_recreate: bool,
    pub is_paused: bool,
    pub is_deleted: bool,
    /// Which class; another one is another template.
    class: i64,
    surge: Amount,
    unavailable: Amount,
    /// A label for Nodes, brought to them without a rollout.
    label: i64,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Machines(i32),
    Percent(i32),
}

impl Amount {
    fn any(dice: &mut Dice) -> Self {
        if dice.one_in(3) {
            Self::Percent(i32::try_from(dice.within(0..101)).unwrap())
        } else {
            Self::Machines(i32::try_from(dice.within(0..3)).unwrap())
        }
    }

    fn written(self) -> Value {
        match self {
            Self::Machines(number) => json!(number),
            Self::Percent(percent) => json!(format!("{percent}%")),
        }
    }

    fn of(self, whole: i32, rounds_up: bool) -> i32 {
        match self {
            Self::Machines(number) => number,
            Self::Percent(percent) if rounds_up => (whole * percent + 99) / 100,
            Self::Percent(percent) => whole * percent / 100,
        }
    }
}

impl Wish {
    pub(super) fn any(dice: &mut Dice) -> Self {
        Self {
            replicas: i32::try_from(dice.within(0..6)).unwrap(),
            is_recreate: dice.one_in(5),
            is_paused: false,
            is_deleted: false,
            class: 0,
            surge: Amount::any(dice),
            unavailable: Amount::any(dice),
            label: 0,
        }
    }

    /// So many Machines, and a usual rolling update.
    pub(super) const fn of(replicas: i32) -> Self {
        Self {
            replicas,
            is_recreate: false,
            is_paused: false,
            is_deleted: false,
            class: 0,
            surge: Amount::Machines(1),
            unavailable: Amount::Machines(0),
            label: 0,
        }
    }

    /// Another label for Nodes.
    pub(super) fn relabel(&mut self) {
        self.label += 1;
    }

    /// Another template.
    pub(super) fn roll(&mut self) {
        self.class = (self.class + 1) % TEMPLATES;
    }

    /// Wishes for something else, and says what.
    pub(super) fn change(&mut self, dice: &mut Dice) -> String {
        match dice.below(14) {
            0..=3 => {
                self.replicas = i32::try_from(dice.within(0..7)).unwrap();
                format!("{} replicas", self.replicas)
            }
            4..=7 => {
                self.class = dice.within(0..TEMPLATES);
                format!("class {}", self.class_name())
            }
            8 | 9 => {
                self.is_paused = !self.is_paused;
                format!("paused: {}", self.is_paused)
            }
            10 => {
                self.surge = Amount::any(dice);
                self.unavailable = Amount::any(dice);
                format!("surge {:?}, unavailable {:?}", self.surge, self.unavailable)
            }
            11 => {
                self.is_recreate = dice.one_in(2);
                format!("recreate: {}", self.is_recreate)
            }
            12 => {
                self.label = dice.within(0..3);
                format!("node label {}", self.label)
            }
            _ => {
                self.is_deleted |= dice.one_in(6);
                format!("deleted: {}", self.is_deleted)
            }
        }
    }

    /// The last wish.
    pub(super) fn settle_down(&mut self, dice: &mut Dice) {
        self.is_paused = false;
        self.is_deleted |= dice.one_in(6);
    }

    pub(super) fn most(&self) -> i32 {
        if self.is_recreate { self.replicas } else { self.replicas + self.surge.of(self.replicas, true) }
    }

    pub(super) fn least(&self) -> i32 {
        let (surge, unavailable) = (self.surge.of(self.replicas, true), self.unavailable.of(self.replicas, false));
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        (self.replicas - unavailable).max(0)
    }

    pub(super) fn class_name(&self) -> String {
        class_name(self.class)
    }

    pub(super) fn node_label(&self) -> String {
        self.label.to_string()
    }

    pub(super) fn spec(&self) -> Value {
        let strategy = if self.is_recreate {
            json!({ "type": "Recreate" })
        } else {
            let (surge, unavailable) = (self.surge.written(), self.unavailable.written());
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
        };
        json!({
            "replicas": self.replicas,
            "paused": self.is_paused,
            "selector": { "matchLabels": { labels::DEPLOYMENT_NAME: POOL } },
            "strategy": strategy,
            "template": {
                "metadata": { "labels": { labels::DEPLOYMENT_NAME: POOL } },
                "spec": {
                    "class": { "kind": "MachineClass", "name": self.class_name() },
                    "nodeTemplate": { "metadata": { "labels": { "pool": self.node_label() } } },
                },
            },
        })
    }

    /// Creates the deployment and all classes.
    pub(super) fn declare(&self, control: &ApiServer) {
        let meta = json!({ "name": SECRET, "namespace": NAMESPACE });
        let data = ByteString(b"join with <<BOOTSTRAP_TOKEN>>".to_vec());
        control.create(&SECRETS, json!({ "metadata": meta, "data": { "userData": data } })).unwrap();
        for class in 0..TEMPLATES {
            let meta = json!({ "name": class_name(class), "namespace": NAMESPACE });
            let secret = json!({ "name": SECRET, "namespace": NAMESPACE });
            let class = json!({ "metadata": meta, "provider": PROVIDER, "providerSpec": {}, "secretRef": secret });
            control.create(&CLASSES, class).unwrap();
        }
        let meta = json!({ "name": POOL, "namespace": NAMESPACE });
        control.create(&DEPLOYMENTS, json!({ "metadata": meta, "spec": self.spec() })).unwrap();
    }
}

fn class_name(class: i64) -> String {
    format!("class-{class}")
}
