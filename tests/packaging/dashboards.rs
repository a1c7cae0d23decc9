//! The dashboards for Grafana in `config/monitoring/dashboards`, made from tables. `UPDATE_DOCS=1 cargo test --test packaging`
//! writes them.

use serde_json::{Value, json};

use super::generated;

/// Columns of a dashboard.
const COLUMNS: u64 = 24;

struct Dashboard {
    /// Name of the file, and part of the identifier.
    name: &'static str,
    title: &'static str,
    /// A deployment can be chosen.
    of_deployment: bool,
    panels: &'static [Panel],
}

struct Panel {
    title: &'static str,
    /// A sentence for those who see it for the first time.
    about: &'static str,
    form: Form,
    unit: &'static str,
    /// Expression and legend of each query.
    queries: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy)]
enum Form {
    /// A number, six in a row. It is red from the value on.
    Number { red: Option<u64> },
    /// Lines over time, two in a row.
    Lines,
}

const fn number(
    title: &'static str,
    about: &'static str,
    red: Option<u64>,
    query: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, about, form: Form::Number { red }, unit: "short", queries: query }
}

const fn lines(
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, about, form: Form::Lines, unit, queries }
}

const DASHBOARDS: [Dashboard; 3] = [
    Dashboard {
        name: "overview",
        title: "mcm / Overview",
        of_deployment: false,
        panels: &[
            number(
                "Machines",
                "All machines.",
                None,
                &[(
                    r#"(count(mcm_machine_current_status_phase{namespace=~"$namespace"}) or vector(0)) + (sum(mcm_machines{namespace=~"$namespace"}) or vector(0))"#,
                    "",
                )],
            ),
            number(
                "Running",
                "Machines whose Node is healthy.",
                None,
                &[(
                    r#"(count(mcm_machine_current_status_phase{namespace=~"$namespace"} == 1) or vector(0)) + (sum(mcm_machines{namespace=~"$namespace",phase="Running"}) or vector(0))"#,
                    "",
                )],
            ),
            number(
                "Failed",
                "Machines in phase Failed or CrashLoopBackOff.",
                Some(1),
                &[(
                    r#"(count(mcm_machine_current_status_phase{namespace=~"$namespace"} == -2 or mcm_machine_current_status_phase{namespace=~"$namespace"} == -3) or vector(0)) + (sum(mcm_machines{namespace=~"$namespace",phase=~"Failed|CrashLoopBackOff"}) or vector(0))"#,
                    "",
                )],
            ),
            number(
                "Frozen",
                "1 while an API server does not answer: no machine is created or replaced.",
                Some(1),
                &[("max(mcm_machine_controller_frozen) or vector(0)", "")],
            ),
            number(
                "Orphan VMs",
                "VMs without a machine.",
                Some(1),
                &[(r#"sum(mcm_orphan_vms{namespace=~"$namespace"}) or vector(0)"#, "")],
            ),
            number(
                "Flawed plans",
                "Plans that were not executed. Each is a bug in mcm.",
                Some(1),
                &[("sum(mcm_plans_flawed_total) or vector(0)", "")],
            ),
            lines(
                "Machines by phase",
                "-4 Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 0 Pending, 1 Running, 2 Available.",
                "short",
                &[
                    (
                        r#"count_values by () ("phase", mcm_machine_current_status_phase{namespace=~"$namespace"})"#,
                        "phase {{phase}}",
                    ),
                    (r#"sum by (phase) (mcm_machines{namespace=~"$namespace"})"#, "{{phase}}"),
                ],
            ),
            lines(
                "Waits by kind",
                "Objects that wait, by the kind of wait.",
                "short",
                &[("sum by (kind) (mcm_waiting)", "{{kind}}")],
            ),
            lines(
                "Longest wait by kind",
                "How long the object that waits longest has waited.",
                "s",
                &[("max by (kind) (mcm_waiting_longest_seconds)", "{{kind}}")],
            ),
            lines(
                "Leader",
                "1 for the replica that holds the Lease.",
                "short",
                &[("mcm_leader", "{{instance}} {{role}}")],
            ),
            lines(
                "Versions",
                "Running instances by version.",
                "short",
                &[("count by (version) (mcm_build_info)", "{{version}}")],
            ),
            lines(
                "Keys in queues",
                "Objects that are to be reconciled, by controller.",
                "short",
                &[("sum by (name) (mcm_workqueue_depth)", "{{name}}")],
            ),
            lines(
                "Duration of reconciles, 99 %",
                "By controller.",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (name, le) (rate(mcm_workqueue_work_duration_seconds_bucket[5m])))",
                    "{{name}}",
                )],
            ),
            lines(
                "Requests to API servers",
                "By status code.",
                "reqps",
                &[(
                    "sum by (code) (rate(rest_client_requests_total[5m]) and on (instance, job) mcm_build_info)",
                    "{{code}}",
                )],
            ),
            lines(
                "Age of caches",
                "Time since the last message of an API server.",
                "s",
                &[("max by (kind, cluster) (mcm_cache_age_seconds)", "{{kind}} of {{cluster}}")],
            ),
            lines(
                "Memory",
                "Of each instance.",
                "bytes",
                &[("process_resident_memory_bytes and on (instance, job) mcm_build_info", "{{instance}}")],
            ),
            lines(
                "CPU",
                "Of each instance, in cores.",
                "short",
                &[("rate(process_cpu_seconds_total[5m]) and on (instance, job) mcm_build_info", "{{instance}}")],
            ),
        ],
    },
    Dashboard {
        name: "rollout",
        title: "mcm / Rollout",
        of_deployment: true,
        panels: &[
            number(
                "Desired",
                "spec.replicas.",
                None,
                &[(
                    r#"sum(mcm_machine_deployment_info_spec_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                    "",
                )],
            ),
            number(
                "Updated",
                "Machines of the current template.",
                None,
                &[(
                    r#"sum(mcm_machine_deployment_status_updated_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                    "",
                )],
            ),
            number(
                "Available",
                "Machines whose Nodes are healthy.",
                None,
                &[(
                    r#"sum(mcm_machine_deployment_status_available_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                    "",
                )],
            ),
            number(
                "Unavailable",
                "Machines that are missing or not healthy.",
                None,
                &[(
                    r#"sum(mcm_machine_deployment_status_unavailable_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                    "",
                )],
            ),
            number(
                "Not progressing",
                "Deployments whose condition Progressing is False.",
                Some(1),
                &[(
                    r#"count(mcm_machine_deployment_status_condition{namespace=~"$namespace",name=~"$deployment",condition="Progressing"} == 0) or vector(0)"#,
                    "",
                )],
            ),
            number(
                "Paused",
                "Deployments with spec.paused.",
                None,
                &[(r#"sum(mcm_machine_deployment_info_spec_paused{namespace=~"$namespace",name=~"$deployment"})"#, "")],
            ),
            lines(
                "Machines",
                "During a rollout the total stays below desired + maxSurge, and available above desired - maxUnavailable.",
                "short",
                &[
                    (
                        r#"sum(mcm_machine_deployment_info_spec_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                        "desired",
                    ),
                    (
                        r#"sum(mcm_machine_deployment_status_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                        "all",
                    ),
                    (
                        r#"sum(mcm_machine_deployment_status_updated_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                        "updated",
                    ),
                    (
                        r#"sum(mcm_machine_deployment_status_available_replicas{namespace=~"$namespace",name=~"$deployment"})"#,
                        "available",
                    ),
                ],
            ),
            lines(
                "Machines by set",
                "The old set shrinks while the new one grows.",
                "short",
                &[(r#"mcm_machine_set_status_replicas{namespace=~"$namespace",name=~"($deployment)-.*"}"#, "{{name}}")],
            ),
            lines(
                "Waits of rollouts",
                "Objects of deployments, sets and machines that wait.",
                "short",
                &[("sum by (controller, kind) (mcm_waiting)", "{{controller}}: {{kind}}")],
            ),
            lines(
                "Longest wait for evictions",
                "A disruption budget that allows no eviction stops a rollout.",
                "s",
                &[(r#"max by (controller) (mcm_waiting_longest_seconds{kind="Eviction"})"#, "{{controller}}")],
            ),
            lines(
                "Duration of drains",
                "The latest of each deployment.",
                "s",
                &[(
                    r#"max by (machine_deployment) (mcm_machine_drain_duration_seconds{namespace=~"$namespace",machine_deployment=~"$deployment"})"#,
                    "{{machine_deployment}}",
                )],
            ),
            lines(
                "From the machine to a ready Node",
                "The latest, by instance type and zone.",
                "s",
                &[(
                    r#"max by (instance_type, zone) (mcm_machine_join_duration_seconds{namespace=~"$namespace",machine_deployment=~"$deployment"})"#,
                    "{{instance_type}} {{zone}}",
                )],
            ),
            lines(
                "Machines that did not join",
                "Within their creation timeout, in an hour.",
                "short",
                &[(
                    r#"sum by (machine_deployment) (increase(mcm_machine_num_failed_join{namespace=~"$namespace",machine_deployment=~"$deployment"}[1h]))"#,
                    "{{machine_deployment}}",
                )],
            ),
            lines(
                "Failed operations",
                "Machines whose last operation failed.",
                "short",
                &[(
                    r#"count by (name) (mcm_machine_deployment_failed_machines{namespace=~"$namespace",name=~"$deployment"})"#,
                    "{{name}}",
                )],
            ),
            lines(
                "Half of the operations take less",
                "Median of each kind of operation in the last hour.",
                "s",
                &[(
                    r#"histogram_quantile(0.5, sum by (operation, le) (rate(mcm_machine_operation_duration_seconds_bucket{namespace=~"$namespace",machine_deployment=~"$deployment"}[1h])))"#,
                    "{{operation}}",
                )],
            ),
            lines(
                "99 % of the operations take less",
                "Of each kind of operation in the last hour.",
                "s",
                &[(
                    r#"histogram_quantile(0.99, sum by (operation, le) (rate(mcm_machine_operation_duration_seconds_bucket{namespace=~"$namespace",machine_deployment=~"$deployment"}[1h])))"#,
                    "{{operation}}",
                )],
            ),
        ],
    },
    Dashboard {
        name: "cloud",
        title: "mcm / Cloud",
        of_deployment: false,
        panels: &[
            number(
                "Drivers down",
                "Remote drivers that do not respond.",
                Some(1),
                &[("count(mcm_driver_up == 0) or vector(0)", "")],
            ),
            number(
                "Failed calls per minute",
                "Of drivers.",
                None,
                &[("60 * sum(rate(mcm_cloud_api_driver_requests_failed_total[5m])) or vector(0)", "")],
            ),
            number(
                "Orphan VMs",
                "VMs without a machine.",
                Some(1),
                &[(r#"sum(mcm_orphan_vms{namespace=~"$namespace"}) or vector(0)"#, "")],
            ),
            number(
                "VMs of others",
                "VMs without a machine that are kept: they have another owner.",
                None,
                &[(r#"sum(mcm_foreign_vms{namespace=~"$namespace"}) or vector(0)"#, "")],
            ),
            number(
                "Unidentified VMs",
                "VMs without a valid name or ID. They are kept.",
                Some(1),
                &[(r#"sum(mcm_unidentified_vms{namespace=~"$namespace"}) or vector(0)"#, "")],
            ),
            number(
                "Machines without VM",
                "The cloud does not list their VMs.",
                Some(1),
                &[(r#"sum(mcm_machines_without_vm{namespace=~"$namespace"}) or vector(0)"#, "")],
            ),
            lines(
                "Driver calls",
                "Successful ones, by provider and operation.",
                "reqps",
                &[(
                    "sum by (provider, operation) (rate(mcm_cloud_api_driver_request_duration_seconds_count[5m]))",
                    "{{provider}} {{operation}}",
                )],
            ),
            lines(
                "Failed driver calls by code",
                "8 ResourceExhausted: no capacity or quota. 14 Unavailable. 16 Unauthenticated.",
                "reqps",
                &[(
                    "sum by (provider, operation, error_code) (rate(mcm_cloud_api_driver_requests_failed_total[5m]))",
                    "{{provider}} {{operation}} {{error_code}}",
                )],
            ),
            lines(
                "Duration of driver calls, 99 %",
                "Successful ones, by provider and operation.",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (provider, operation, le) (rate(mcm_cloud_api_driver_request_duration_seconds_bucket[5m])))",
                    "{{provider}} {{operation}}",
                )],
            ),
            lines(
                "Requests to the cloud",
                "Each attempt counts. Clouds limit this rate.",
                "reqps",
                &[("sum by (provider, service) (rate(mcm_cloud_api_requests_total[5m]))", "{{provider}} {{service}}")],
            ),
            lines(
                "Failed requests to the cloud",
                "By provider and service.",
                "reqps",
                &[(
                    "sum by (provider, service) (rate(mcm_cloud_api_requests_failed_total[5m]))",
                    "{{provider}} {{service}}",
                )],
            ),
            lines(
                "Duration of requests to the cloud, 99 %",
                "Successful ones.",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (provider, service, le) (rate(mcm_cloud_api_api_request_duration_seconds_bucket[5m])))",
                    "{{provider}} {{service}}",
                )],
            ),
            lines(
                "Creation of a VM",
                "The latest, by instance type and zone.",
                "s",
                &[(
                    r#"max by (instance_type, zone) (mcm_machine_create_duration_seconds{namespace=~"$namespace"})"#,
                    "{{instance_type}} {{zone}}",
                )],
            ),
            lines(
                "Deletion of a VM",
                "The latest, by instance type and zone, including the drain.",
                "s",
                &[(
                    r#"max by (instance_type, zone) (mcm_machine_delete_duration_seconds{namespace=~"$namespace"})"#,
                    "{{instance_type}} {{zone}}",
                )],
            ),
            lines(
                "Waits for the cloud",
                "Machines whose call failed and is repeated, and lookups without an answer.",
                "short",
                &[(r#"sum by (kind) (mcm_waiting{kind=~"DriverRetry|CloudOperation|VmLookup"})"#, "{{kind}}")],
            ),
            lines(
                "Deleted orphans",
                "In an hour, by class.",
                "short",
                &[(
                    r#"sum by (namespace, class) (increase(mcm_orphan_vms_deleted_total{namespace=~"$namespace"}[1h]))"#,
                    "{{namespace}}/{{class}}",
                )],
            ),
        ],
    },
];

/// All queries, with the place of each.
pub fn queries() -> impl Iterator<Item = (String, &'static str)> {
    DASHBOARDS.iter().flat_map(|dashboard| {
        let panels = dashboard.panels.iter();
        panels.flat_map(|panel| {
            panel.queries.iter().map(|(query, _)| (format!("{}: {}", dashboard.title, panel.title), *query))
        })
    })
}

#[test]
fn dashboards_are_up_to_date() {
    for dashboard in &DASHBOARDS {
        let text = serde_json::to_string_pretty(&dashboard.json()).unwrap() + "\n";
        generated(&format!("config/monitoring/dashboards/{}.json", dashboard.name), &text);
    }
}

impl Dashboard {
    fn json(&self) -> Value {
        let mut variables = vec![
            json!({ "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" }),
            variable("namespace", "Namespace", "label_values(mcm_machine_deployment_info_spec_replicas, namespace)"),
        ];
        if self.of_deployment {
            let query = r#"label_values(mcm_machine_deployment_info_spec_replicas{namespace=~"$namespace"}, name)"#;
            variables.push(variable("deployment", "Deployment", query));
        }
        let (mut x, mut y, mut row) = (0, 0, 0);
        let mut panels = Vec::new();
        for (panel, id) in self.panels.iter().zip(1_u64..) {
            let (width, height) = panel.form.size();
            if x + width > COLUMNS || (row != 0 && row != height) {
                (x, y) = (0, y + row);
            }
            panels.push(panel.json(id, json!({ "x": x, "y": y, "w": width, "h": height })));
            (x, row) = (x + width, height);
        }
        json!({
            "uid": format!("mcm-{}", self.name), "title": self.title, "tags": ["mcm"], "schemaVersion": 39, "editable": true,
            "refresh": "30s", "time": { "from": "now-3h", "to": "now" }, "timezone": "browser",
            "links": [{ "type": "dashboards", "tags": ["mcm"], "title": "mcm", "asDropdown": false, "keepTime": true, "includeVars": true }],
            "templating": { "list": variables }, "panels": panels,
        })
    }
}

impl Panel {
    fn json(&self, id: u64, position: Value) -> Value {
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..)
            .map(|((query, legend), name)| json!({ "refId": name.to_string(), "expr": query, "legendFormat": legend }))
            .collect();
        let mut defaults = json!({ "unit": self.unit, "min": 0 });
        if let Form::Number { red: Some(red) } = self.form {
            let steps = json!([{ "color": "green", "value": null }, { "color": "red", "value": red }]);
            defaults["thresholds"] = json!({ "mode": "absolute", "steps": steps });
        }
        json!({
            "id": id, "title": self.title, "description": self.about, "type": self.form.name(), "gridPos": position,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "fieldConfig": { "defaults": defaults, "overrides": [] }, "targets": targets,
        })
    }
}

impl Form {
    /// Width and height.
    const fn size(self) -> (u64, u64) {
        match self {
            Self::Number { .. } => (4, 4),
            Self::Lines => (12, 8),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Number { .. } => "stat",
            Self::Lines => "timeseries",
        }
    }
}

fn variable(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name, "label": label, "type": "query", "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "query": query, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
        "current": { "text": "All", "value": "$__all" },
    })
}
