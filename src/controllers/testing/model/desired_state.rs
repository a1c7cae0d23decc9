//! The desired state of the user, and its bounds, computed independently of the code under test.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    super::api_server::{ApiServer, CLASSES, DEPLOYMENTS, SECRETS, ServerObject},
    areas::Areas,
    cloud::PROVIDER,
    rng::Rng,
    world::NAMESPACE,
};
use mcm_api::labels;

pub(super) const POOL: &str = "pool";
const TEMPLATES: i64 = 3;
/// Key of the label of the template with its version. It is missing at first.
const VERSION: &str = "version";
/// Every class refers to it.
const SECRET: &str = "secret";

#[derive(Clone, Debug)]
pub(super) struct DesiredState {
    pub replicas: i32,
    pub strategy: Strategy,
    pub is_paused: bool,
    pub is_deleted: bool,
    /// The class; another class means another template.
    class: i64,
    /// A label of the template; another label also means another template. Machines that are updated in place get it,
    /// and keep their class.
    version: i64,
    surge: Amount,
    unavailable: Amount,
    /// A label for Nodes, brought to them without a rollout.
    label: i64,
    /// How many failed Machines of a set are preserved automatically, and for how many minutes; nothing if there is no
    /// preservation.
    pub preserved: Option<(i64, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    Rolling,
    Recreate,
    InPlace { is_manual: bool },
}

impl Strategy {
    const AUTO: Self = Self::InPlace { is_manual: false };
    const MANUAL: Self = Self::InPlace { is_manual: true };

    fn written(self, surge: Value, unavailable: Value) -> Value {
        match self {
            Self::Rolling => {
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
            }
            Self::Recreate => json!({ "type": "Recreate" }),
            Self::InPlace { is_manual } => {
                let by = if is_manual { "Manual" } else { "Auto" };
                let amounts = json!({ "maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": by });
                json!({ "type": "InPlaceUpdate", "inPlaceUpdate": amounts })
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Machines(i32),
    Percent(i32),
}

impl Amount {
    fn any(rng: &mut Rng) -> Self {
        if rng.one_in(3) {
            Self::Percent(i32::try_from(rng.within(0..101)).unwrap())
        } else {
            Self::Machines(i32::try_from(rng.within(0..3)).unwrap())
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

impl DesiredState {
    pub(super) fn any(rng: &mut Rng, areas: Areas) -> Self {
        let mut desired = Self {
            replicas: i32::try_from(rng.within(0..6)).unwrap(),
            strategy: if rng.one_in(5) { Strategy::Recreate } else { Strategy::Rolling },
            is_paused: false,
            is_deleted: false,
            class: 0,
            version: 0,
            surge: Amount::any(rng),
            unavailable: Amount::any(rng),
            label: 0,
            preserved: None,
        };
        if areas.preservation {
            desired.preserved = Some((rng.within(0..3), rng.within(5..20)));
        }
        if areas.in_place {
            desired.strategy = *rng.pick(&[Strategy::AUTO, Strategy::AUTO, Strategy::AUTO, Strategy::MANUAL]).unwrap();
        }
        desired
    }

    /// So many Machines, and a usual rolling update.
    pub(super) const fn of(replicas: i32) -> Self {
        Self {
            replicas,
            strategy: Strategy::Rolling,
            is_paused: false,
            is_deleted: false,
            class: 0,
            version: 0,
            surge: Amount::Machines(1),
            unavailable: Amount::Machines(0),
            label: 0,
            preserved: None,
        }
    }

    /// So many Machines, of which a rolling update replaces a share at a time.
    #[cfg(test)]
    pub(super) const fn percent(replicas: i32, percent: i32) -> Self {
        Self { surge: Amount::Percent(percent), unavailable: Amount::Percent(percent), ..Self::of(replicas) }
    }

    /// Another label for Nodes.
    pub(super) fn relabel(&mut self) {
        self.label += 1;
    }

    /// Another template.
    pub(super) fn roll(&mut self) {
        self.class = (self.class + 1) % TEMPLATES;
    }

    /// Another template that differs in a label.
    pub(super) fn update(&mut self) {
        self.version = (self.version + 1) % TEMPLATES;
    }

    /// Changes the desired state, and returns a description.
    pub(super) fn change(&mut self, rng: &mut Rng, areas: Areas) -> String {
        if areas.preservation && rng.one_in(5) {
            self.preserved = Some((rng.within(0..3), rng.within(5..20)));
            return format!("preserved: {:?}", self.preserved);
        }
        match rng.below(14) {
            0..=3 => {
                self.replicas = i32::try_from(rng.within(0..7)).unwrap();
                format!("{} replicas", self.replicas)
            }
            4..=7 if areas.in_place => {
                self.version = rng.within(0..TEMPLATES);
                if rng.one_in(4) {
                    self.class = rng.within(0..TEMPLATES);
                }
                format!("version {}, class {}", self.version, self.class_name())
            }
            4..=7 => {
                self.class = rng.within(0..TEMPLATES);
                format!("class {}", self.class_name())
            }
            8 | 9 => {
                self.is_paused = !self.is_paused;
                format!("paused: {}", self.is_paused)
            }
            10 => {
                self.surge = Amount::any(rng);
                self.unavailable = Amount::any(rng);
                format!("surge {:?}, unavailable {:?}", self.surge, self.unavailable)
            }
            11 => {
                let all: &[Strategy] = match areas.in_place {
                    true => &[Strategy::AUTO, Strategy::AUTO, Strategy::MANUAL, Strategy::Rolling, Strategy::Recreate],
                    false => &[Strategy::Recreate, Strategy::Rolling],
                };
                self.strategy = *rng.pick(all).unwrap();
                format!("{:?}", self.strategy)
            }
            12 => {
                self.label = rng.within(0..3);
                format!("node label {}", self.label)
            }
            _ => {
                self.is_deleted |= rng.one_in(6);
                format!("deleted: {}", self.is_deleted)
            }
        }
    }

    /// The last desired state.
    pub(super) fn settle_down(&mut self, rng: &mut Rng) {
        self.is_paused = false;
        self.is_deleted |= rng.one_in(6);
    }

    pub(super) fn most(&self) -> i32 {
        self.replicas + self.surge_of()
    }

    /// Where a user selects the Nodes, there is nothing to make room for.
    fn surge_of(&self) -> i32 {
        match self.strategy {
            Strategy::Recreate | Strategy::MANUAL => 0,
            Strategy::Rolling | Strategy::AUTO => self.surge.of(self.replicas, true),
        }
    }

    /// A user selects the Nodes that are updated in place.
    pub(super) fn is_manual(&self) -> bool {
        self.strategy == Strategy::MANUAL
    }

    pub(super) const fn is_in_place(&self) -> bool {
        matches!(self.strategy, Strategy::InPlace { .. })
    }

    pub(super) fn least(&self) -> i32 {
        let (surge, unavailable) = (self.surge_of(), self.unavailable.of(self.replicas, false));
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        (self.replicas - unavailable).max(0)
    }

    /// A Machine is one of the current template. One that was updated in place keeps its class.
    pub(super) fn is_of_template(&self, machine: &ServerObject, areas: Areas) -> bool {
        let version = machine.value["metadata"]["labels"][VERSION].as_str().unwrap_or("0");
        let class = machine.value["spec"]["class"]["name"].as_str().unwrap_or_default();
        version == self.version.to_string() && (areas.in_place || class == self.class_name())
    }

    pub(super) fn class_name(&self) -> String {
        class_name(self.class)
    }

    pub(super) fn node_label(&self) -> String {
        self.label.to_string()
    }

    pub(super) fn spec(&self) -> Value {
        let strategy = self.strategy.written(self.surge.written(), self.unavailable.written());
        let mut labels = json!({ labels::DEPLOYMENT_NAME: POOL });
        if self.version > 0 {
            labels[VERSION] = json!(self.version.to_string());
        }
        let mut spec = json!({
            "replicas": self.replicas,
            "paused": self.is_paused,
            "selector": { "matchLabels": { labels::DEPLOYMENT_NAME: POOL } },
            "strategy": strategy,
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "class": { "kind": "MachineClass", "name": self.class_name() },
                    "nodeTemplate": { "metadata": { "labels": { "pool": self.node_label() } } },
                },
            },
        });
        if let Some((count, minutes)) = self.preserved {
            spec["autoPreserveFailedMachineMax"] = json!(count);
            spec["template"]["spec"]["machinePreserveTimeout"] = json!(format!("{minutes}m"));
        }
        spec
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

/// The name of some class.
pub(super) fn any_class(rng: &mut Rng) -> String {
    class_name(rng.within(0..TEMPLATES))
}

/// The names of all classes.
pub(super) fn class_names() -> impl Iterator<Item = String> {
    (0..TEMPLATES).map(class_name)
}

fn class_name(class: i64) -> String {
    format!("class-{class}")
}
