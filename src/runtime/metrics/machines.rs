//! What happens to machines: how long it took, and what failed.

use std::time::Duration;

use super::{Counters, Desc, Exposition, Gauges};

const STALE: Desc<0> = Desc::counter(
    "mcm_machine_stale_machines_total",
    "Failed machines that were deleted because they stayed unhealthy.",
    [],
);
const FROZEN: Desc<0> =
    Desc::gauge("mcm_machine_controller_frozen", "1 while machines are left alone because an API server is away.", []);
const FAILED_JOIN: Desc<4> = Desc::counter(
    "mcm_machine_num_failed_join",
    "Machines that did not join the cluster in time.",
    ["namespace", "machine_deployment", "instance_type", "zone"],
);
const CREATE: Desc<4> = Desc::gauge(
    "mcm_machine_create_duration_seconds",
    "Seconds from the machine object to its VM, last value.",
    ["namespace", "machine_deployment", "instance_type", "zone"],
);
const INITIALIZE: Desc<4> = Desc::gauge(
    "mcm_machine_initialize_duration_seconds",
    "Seconds that initialising the VM took, last value.",
    ["namespace", "machine_deployment", "instance_type", "zone"],
);
const JOIN: Desc<4> = Desc::gauge(
    "mcm_machine_join_duration_seconds",
    "Seconds from the machine object to a ready node, last value.",
    ["namespace", "machine_deployment", "instance_type", "zone"],
);
const DELETE: Desc<4> = Desc::gauge(
    "mcm_machine_delete_duration_seconds",
    "Seconds from the wish to delete the machine to the end of its VM, last value.",
    ["namespace", "machine_deployment", "instance_type", "zone"],
);
const DRAIN: Desc<2> = Desc::gauge(
    "mcm_machine_drain_duration_seconds",
    "Seconds that the last successful drain took.",
    ["namespace", "machine_deployment"],
);

/// Machines that are told apart in metrics. An unknown instance type or zone is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool<'a> {
    /// Namespace of the machines.
    pub namespace: &'a str,
    /// Their label `name`; machines without it are not measured.
    pub deployment: &'a str,
    /// Instance type of the class's node template.
    pub instance_type: &'a str,
    /// Label `topology.kubernetes.io/zone` of the machine's node template.
    pub zone: &'a str,
}

impl<'a> Pool<'a> {
    const fn labels(&self) -> [&'a str; 4] {
        [self.namespace, self.deployment, self.instance_type, self.zone]
    }
}

/// Observes machines. Durations are kept as whole seconds.
#[derive(Debug)]
pub struct MachineMetrics {
    stale: Counters<0>,
    frozen: Gauges<0>,
    failed_join: Counters<4>,
    create: Gauges<4>,
    initialize: Gauges<4>,
    join: Gauges<4>,
    delete: Gauges<4>,
    drain: Gauges<2>,
}

impl Default for MachineMetrics {
    fn default() -> Self {
        let stale = Counters::default();
        stale.add([], 0.0);
        Self {
            stale,
            frozen: Gauges::default(),
            failed_join: Counters::default(),
            create: Gauges::default(),
            initialize: Gauges::default(),
            join: Gauges::default(),
            delete: Gauges::default(),
            drain: Gauges::default(),
        }
    }
}

impl MachineMetrics {
    /// A failed machine was deleted to be replaced.
    pub fn stale_deleted(&self) {
        self.stale.add([], 1.0);
    }

    /// Machines are frozen, or no longer. Until the first call there is no series.
    pub fn frozen(&self, frozen: bool) {
        self.frozen.set([], f64::from(u8::from(frozen)));
    }

    /// A machine ran out of time for joining.
    pub fn failed_to_join(&self, pool: Pool<'_>) {
        self.failed_join.add(pool.labels(), 1.0);
    }

    /// A VM exists, so long after its machine object was made.
    pub fn created(&self, pool: Pool<'_>, after: Duration) {
        self.create.set(pool.labels(), whole(after));
    }

    /// Initialising a VM took so long.
    pub fn initialized(&self, pool: Pool<'_>, took: Duration) {
        self.initialize.set(pool.labels(), whole(took));
    }

    /// A machine runs, so long after its object was made.
    pub fn joined(&self, pool: Pool<'_>, after: Duration) {
        self.join.set(pool.labels(), whole(after));
    }

    /// A VM is gone, so long after its machine was to be deleted.
    pub fn deleted(&self, pool: Pool<'_>, after: Duration) {
        self.delete.set(pool.labels(), whole(after));
    }

    /// A drain succeeded within this time.
    pub fn drained(&self, namespace: &str, deployment: &str, took: Duration) {
        self.drain.set([namespace, deployment], whole(took));
    }

    /// A deployment is gone, and with it its durations.
    pub fn forget(&self, namespace: &str, deployment: &str) {
        for gauges in [&self.create, &self.initialize, &self.join, &self.delete] {
            gauges.retain(|[of_namespace, of_deployment, ..]| of_namespace != namespace || of_deployment != deployment);
        }
        self.drain.retain(|[of_namespace, of_deployment]| of_namespace != namespace || of_deployment != deployment);
    }

    pub(super) fn collect(&self, out: &mut Exposition) {
        self.stale.collect(&STALE, out);
        self.frozen.collect(&FROZEN, out);
        self.failed_join.collect(&FAILED_JOIN, out);
        self.create.collect(&CREATE, out);
        self.initialize.collect(&INITIALIZE, out);
        self.join.collect(&JOIN, out);
        self.delete.collect(&DELETE, out);
        self.drain.collect(&DRAIN, out);
    }
}

fn whole(duration: Duration) -> f64 {
    duration.as_secs_f64().round()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(machines: &MachineMetrics) -> String {
        let mut out = Exposition::default();
        machines.collect(&mut out);
        out.finish()
    }

    #[test]
    fn a_class_without_instance_type_is_measured_all_the_same() {
        let machines = MachineMetrics::default();
        let pool = Pool { namespace: "shoot", deployment: "worker", instance_type: "", zone: "" };
        machines.created(pool, Duration::from_millis(2600));
        machines.failed_to_join(pool);
        let labels = r#"{namespace="shoot",machine_deployment="worker",instance_type="",zone=""}"#;
        let text = text(&machines);
        assert!(text.contains(&format!("mcm_machine_create_duration_seconds{labels} 3\n")), "{text}");
        assert!(text.contains(&format!("mcm_machine_num_failed_join{labels} 1\n")), "{text}");
    }

    #[test]
    fn durations_end_with_their_deployment() {
        let machines = MachineMetrics::default();
        for deployment in ["gone", "stays"] {
            machines.joined(Pool { namespace: "n", deployment, instance_type: "i", zone: "z" }, Duration::ZERO);
            machines.drained("n", deployment, Duration::ZERO);
        }
        machines.forget("n", "gone");
        let text = text(&machines);
        assert!(!text.contains("gone"), "{text}");
        assert_eq!(text.matches("stays").count(), 2, "{text}");
    }
}
