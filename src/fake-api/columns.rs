//! The columns of tables.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    definitions,
    kinds::{BUDGETS, CONFIG_MAPS, DEFINITIONS, EVENTS, Kind, LEASES, NAMESPACES, NODES, PODS, SECRETS, WORKLOADS},
};

/// One column.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    name: String,
    kind: String,
    description: String,
    /// Columns above 0 are printed with `-o wide`.
    priority: i64,
    source: ColumnSource,
}

#[derive(Clone, Debug)]
enum ColumnSource {
    /// The value at a JSON pointer.
    Field(String),
    /// The time since that at a JSON pointer.
    Age(String),
    /// A text that is made of several fields.
    Text(fn(&Value) -> String),
}

/// Name, priority and source of a column of a built-in kind.
type BuiltInColumn = (&'static str, i64, ColumnSource);

/// The columns of a kind.
pub(super) fn columns_of(kind: &Kind) -> Vec<TableColumn> {
    let mut columns = vec![TableColumn {
        name: "Name".to_owned(),
        kind: "string".to_owned(),
        description: "Name of the object.".to_owned(),
        priority: 0,
        source: ColumnSource::Field("/metadata/name".to_owned()),
    }];
    if kind.is_custom {
        columns.extend(definitions::columns_of(kind).iter().map(defined));
        return columns;
    }
    if *kind == EVENTS {
        columns.clear();
    }
    columns.extend(built_in(kind).into_iter().map(|(name, priority, source)| TableColumn {
        name: name.to_owned(),
        kind: "string".to_owned(),
        description: String::new(),
        priority,
        source,
    }));
    columns
}

impl TableColumn {
    /// The column in the head of a table.
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "description": self.description, "priority": self.priority,
            "format": if self.name == "Name" { "name" } else { "" },
        })
    }

    /// The cell of an object.
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.source {
            ColumnSource::Field(pointer) => object.pointer(pointer).cloned().unwrap_or_default(),
            ColumnSource::Age(pointer) => match object.pointer(pointer).and_then(Value::as_str) {
                Some(text) => json!(text.parse().map_or_else(|_| "<invalid>".to_owned(), |since| age(now, since))),
                None => json!("<unknown>"),
            },
            ColumnSource::Text(text) => json!(text(object)),
        }
    }
}

/// A column of a definition. Its path names fields only.
fn defined(column: &Value) -> TableColumn {
    let text = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
    let (kind, pointer) = (text("type"), text("jsonPath").replace('.', "/"));
    TableColumn {
        name: text("name"),
        source: if kind == "date" { ColumnSource::Age(pointer) } else { ColumnSource::Field(pointer) },
        kind: if kind == "date" { "string".to_owned() } else { kind },
        description: text("description"),
        priority: column["priority"].as_i64().unwrap_or_default(),
    }
}

fn built_in(kind: &Kind) -> Vec<BuiltInColumn> {
    let age = || ("Age", 0, ColumnSource::Age("/metadata/creationTimestamp".to_owned()));
    let field = |name, pointer: &str| (name, 0, ColumnSource::Field(pointer.to_owned()));
    let wide = |name, pointer: &str| (name, 1, ColumnSource::Field(pointer.to_owned()));
    let text = |name, text: fn(&Value) -> String| (name, 0, ColumnSource::Text(text));
    let count: fn(&Value) -> String = |object| object["data"].as_object().map_or(0, |data| data.len()).to_string();
    if *kind == NODES {
        return vec![
            text("Status", node_status),
            text("Roles", |_| "<none>".to_owned()),
            age(),
            field("Version", "/status/nodeInfo/kubeletVersion"),
            ("Internal-IP", 1, ColumnSource::Text(internal_address)),
            wide("OS-Image", "/status/nodeInfo/osImage"),
            wide("Kernel-Version", "/status/nodeInfo/kernelVersion"),
            wide("Container-Runtime", "/status/nodeInfo/containerRuntimeVersion"),
        ];
    }
    if *kind == PODS {
        let node = wide("Node", "/spec/nodeName");
        return vec![
            text("Ready", ready_containers),
            text("Status", pod_status),
            text("Restarts", |_| "0".into()),
            age(),
            node,
        ];
    }
    if *kind == WORKLOADS {
        return vec![
            text("Ready", ready_replicas),
            field("Up-to-date", "/status/updatedReplicas"),
            field("Available", "/status/availableReplicas"),
            age(),
        ];
    }
    if *kind == EVENTS {
        return vec![
            ("Last Seen", 0, ColumnSource::Age("/lastTimestamp".to_owned())),
            field("Type", "/type"),
            field("Reason", "/reason"),
            text("Object", |event| {
                let object = &event["involvedObject"];
                let part = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
                format!("{}/{}", part("kind").to_lowercase(), part("name"))
            }),
            field("Message", "/message"),
            ("Name", 1, ColumnSource::Field("/metadata/name".to_owned())),
        ];
    }
    if *kind == BUDGETS {
        return vec![
            text("Min Available", |budget| number_or_none(&budget["spec"]["minAvailable"])),
            text("Max Unavailable", |budget| number_or_none(&budget["spec"]["maxUnavailable"])),
            field("Allowed Disruptions", "/status/disruptionsAllowed"),
            age(),
        ];
    }
    if *kind == SECRETS {
        return vec![text("Type", secret_type), text("Data", count), age()];
    }
    if *kind == CONFIG_MAPS {
        return vec![text("Data", count), age()];
    }
    if *kind == LEASES {
        return vec![field("Holder", "/spec/holderIdentity"), age()];
    }
    if *kind == NAMESPACES {
        return vec![field("Status", "/status/phase"), age()];
    }
    if *kind == DEFINITIONS {
        return vec![field("Created At", "/metadata/creationTimestamp")];
    }
    vec![age()]
}

fn node_status(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let status = match ready.and_then(|ready| ready["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{status}{cordoned}")
}

fn internal_address(node: &Value) -> String {
    let addresses = node["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP");
    internal.and_then(|address| address["address"].as_str()).unwrap_or("<none>").to_owned()
}

fn pod_status(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".to_owned();
    }
    pod["status"]["phase"].as_str().unwrap_or("Pending").to_owned()
}

fn ready_containers(pod: &Value) -> String {
    let all = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    format!("{}/{all}", if is_ready { all } else { 0 })
}

fn ready_replicas(workload: &Value) -> String {
    let ready = workload["status"]["readyReplicas"].as_i64().unwrap_or_default();
    format!("{ready}/{}", workload["spec"]["replicas"].as_i64().unwrap_or(1))
}

fn secret_type(secret: &Value) -> String {
    secret["type"].as_str().unwrap_or("Opaque").to_owned()
}

fn number_or_none(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A duration as `kubectl` prints it: in the two largest units that matter.
fn age(now: Timestamp, since: Timestamp) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    let of = |large: i64, small: i64| (seconds.div_euclid(large), seconds.rem_euclid(large).div_euclid(small));
    let both = |(large, small): (i64, i64), units: [&str; 2]| match small {
        0 => format!("{large}{}", units[0]),
        small => format!("{large}{}{small}{}", units[0], units[1]),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => both(of(MINUTE, 1), ["m", "s"]),
        600..10_800 => format!("{}m", of(MINUTE, 1).0),
        10_800..28_800 => both(of(HOUR, MINUTE), ["h", "m"]),
        28_800..172_800 => format!("{}h", of(HOUR, MINUTE).0),
        172_800..691_200 => both(of(DAY, HOUR), ["d", "h"]),
        691_200..63_072_000 => format!("{}d", of(DAY, HOUR).0),
        _ => both(of(YEAR, DAY), ["y", "d"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{ALL, MACHINES};

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        for (seconds, expected) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_600, "60m"),
            (4 * 3_600 + 60, "4h1m"),
            (9 * 3_600, "9h"),
            (3 * 86_400 + 3_600, "3d1h"),
            (100 * 86_400, "100d"),
            (800 * 86_400, "2y70d"),
        ] {
            let since = Timestamp::from_second(1_700_000_000).unwrap();
            assert_eq!(age(Timestamp::from_second(1_700_000_000 + seconds).unwrap(), since), expected);
        }
    }

    #[test]
    fn a_machine_has_the_columns_of_its_definition() {
        let names: Vec<String> = columns_of(&MACHINES).into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Status", "Age", "Node", "ProviderID", "Class", "Last Operation"]);
        for kind in ALL.into_iter().filter(|kind| kind.is_custom) {
            for column in definitions::columns_of(kind) {
                let path = column["jsonPath"].as_str().unwrap();
                assert!(path.starts_with('.') && !path.contains(['[', '\\', '*']), "{path} names more than fields");
            }
        }
    }

    #[test]
    fn cells_show_the_fields_of_the_object() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let cells = |kind: &Kind, object: Value| -> Vec<Value> {
            columns_of(kind)
                .iter()
                .filter(|column| column.priority == 0)
                .map(|column| column.cell(&object, now))
                .collect()
        };
        let machine = json!({
            "metadata": { "name": "m", "labels": { "node": "n" }, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "currentStatus": { "phase": "Running" } },
        });
        assert_eq!(json!(cells(&MACHINES, machine)), json!(["m", "Running", "60s", "n"]));
        let node = json!({
            "metadata": { "name": "n" },
            "spec": { "unschedulable": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "kubeletVersion": "v1" } },
        });
        assert_eq!(json!(cells(&NODES, node)), json!(["n", "Ready,SchedulingDisabled", "<none>", "<unknown>", "v1"]));
    }
}
