//! The audit log of an API server, read while it is written.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::Value;

use super::ownership::{ActPlace, FleetAct, LeaseWrite, OwnershipRecord};

/// The user name of an account of the fleet begins so.
const ACCOUNTS: &str = "system:serviceaccount:mcm-system:";
const LEASES: &str = "coordination.k8s.io";

/// Leases and acts of all replicas, up to the end of the audit log. Clones share them.
#[derive(Clone)]
pub struct FleetRecord(Arc<Mutex<AuditedRecord>>);

struct AuditedRecord {
    audit: AuditTail,
    record: OwnershipRecord,
}

impl FleetRecord {
    /// A record of the writes in an audit log.
    pub fn new(log: PathBuf) -> Self {
        let record = AuditedRecord { audit: AuditTail::new(log), record: OwnershipRecord::default() };
        Self(Arc::new(Mutex::new(record)))
    }

    /// Reads or changes the record.
    pub fn with<T>(&self, work: impl FnOnce(&mut OwnershipRecord) -> T) -> T {
        let mut audited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let AuditedRecord { audit, record } = &mut *audited;
        for write in audit.news() {
            match write {
                AuditedWrite::Act(act) => record.add_act(act),
                AuditedWrite::Lease(write) => record.add_lease_write(write),
            }
        }
        work(record)
    }
}

/// A line about a write of a replica.
pub enum AuditedWrite {
    Act(FleetAct),
    Lease(LeaseWrite),
}

/// An audit log, and the position up to which it was read.
struct AuditTail {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl AuditTail {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// The writes of replicas since the last call.
    fn news(&mut self) -> Vec<AuditedWrite> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        file.read_to_end(&mut self.rest).unwrap();
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let events = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        events.filter_map(|event: Value| write_of(&event)).collect()
    }
}

/// The flags of `hack/control-plane up` with which the API server writes the log.
pub fn flags(policy: &Path, log: &Path) -> Vec<String> {
    let flag = |name: &str, value: String| format!("--arg=kube-apiserver=--audit-{name}={value}");
    vec![
        flag("policy-file", policy.display().to_string()),
        flag("log-path", log.display().to_string()),
        // In megabytes: it is read to its end, so it is not replaced.
        flag("log-maxsize", "8192".to_owned()),
    ]
}

/// The write of an event of the log. Events and reviews are written without a claim.
pub fn write_of(event: &Value) -> Option<AuditedWrite> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let time = |pointer: &str| text(pointer).parse::<Timestamp>().ok();
    let replica = text("/user/username").strip_prefix(ACCOUNTS)?.to_owned();
    let namespace = text("/objectRef/namespace").to_owned();
    let begun = time("/requestReceivedTimestamp")?;
    if text("/objectRef/apiGroup") == LEASES {
        let code = event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
        if (400..500).contains(&code) {
            return None;
        }
        let name = [text("/objectRef/name"), text("/requestObject/metadata/name")];
        return Some(AuditedWrite::Lease(LeaseWrite {
            begun,
            ended: time("/stageTimestamp")?,
            replica,
            namespace,
            lease: name.into_iter().find(|name| !name.is_empty())?.to_owned(),
            holder: text("/requestObject/spec/holderIdentity").to_owned(),
            is_stored: (200..300).contains(&code),
        }));
    }
    if namespace.is_empty() || text("/objectRef/resource") == "events" {
        return None;
    }
    let request = format!("{} {}", text("/verb"), text("/requestURI"));
    Some(AuditedWrite::Act(FleetAct { at: begun, replica, namespace, place: ActPlace::Control, request }))
}
