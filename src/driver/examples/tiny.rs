//! A whole driver, for a cloud that is a table in memory, and the conformance suite that checks it.
//!
//! `cargo run -p mcm-driver --example tiny` prints the requirements and whether the driver fulfils them. A driver of a real cloud has
//! the same parts: the fields of a class, VMs with markers, the rules that match VMs to Machines, and the calls.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, MachineRequest, SecretData, Vm, VmsByProviderId,
    cloud::{
        CloudVm, MachineIdentity, ProviderIds, VmOwnership, check_provider, created_for, idempotency_token, known_as,
        only,
    },
    conformance::{ConformanceSubject, run},
    spec::{ClassProblems, FieldReader, one_of, string},
};
use serde_json::{Value, json};

const NAME: &str = "tiny";
/// `tiny:///table/<row>`
const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "tiny:///" };
const SIZES: [&str; 2] = ["small", "large"];

/// The fields of `providerSpec`. Wrong fields have their default.
#[derive(Default)]
struct Spec {
    cluster: String,
    size: &'static str,
}

impl Spec {
    /// Reads a `providerSpec`, and reports all of its problems at once.
    fn read(class: &MachineClass, problems: &mut ClassProblems) -> Self {
        check_provider(class, NAME, problems);
        let mut fields = FieldReader::of_spec(&class.provider_spec, &["cluster", "size"], problems);
        Self {
            cluster: fields.required("cluster", &string()).unwrap_or_default(),
            size: fields.required("size", &one_of(&SIZES)).unwrap_or_default(),
        }
    }

    /// The cluster of a class, which is all that look-ups and deletions need.
    fn cluster_of(class: &MachineClass) -> Result<String, DriverError> {
        let spec = Self::read(class, &mut ClassProblems::default());
        if spec.cluster.is_empty() {
            return Err(DriverError::new(Code::InvalidArgument, "the class needs providerSpec.cluster"));
        }
        Ok(spec.cluster)
    }
}

/// A VM with its markers.
#[derive(Clone)]
struct Row {
    id: String,
    machine: String,
    uid: String,
    owner: String,
    cluster: String,
    size: &'static str,
}

impl CloudVm for Row {
    type Scope = str;

    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn machine_name(&self) -> &str {
        &self.machine
    }

    fn machine_uid(&self) -> Option<&str> {
        Some(&self.uid)
    }

    fn belonging(&self, cluster: &str) -> VmOwnership {
        if self.cluster == cluster { VmOwnership::Ours } else { VmOwnership::Foreign }
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}

impl Row {
    fn vm(&self) -> Vm {
        Vm {
            provider_id: IDS.node_form("table", &self.id),
            node_name: self.machine.clone(),
            last_known_state: Some(format!("row {} is {}", self.id, self.size)),
            ..Vm::default()
        }
    }
}

/// The cloud, and its driver.
#[derive(Default)]
struct TinyDriver {
    /// The rows, by ID, and how many there ever were.
    table: Mutex<(BTreeMap<String, Row>, u64)>,
}

impl TinyDriver {
    /// Reads or changes the rows. A real driver calls its cloud here.
    fn with_rows<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Row>, &mut u64) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, count) = &mut *table;
        work(rows, count)
    }

    /// The row with the provider ID of a Machine or, without an ID, all that were created for it.
    fn find(&self, request: &MachineRequest) -> Result<Vec<Row>, DriverError> {
        let (cluster, wanted) = (Spec::cluster_of(&request.class)?, MachineIdentity::from_machine(&request.machine));
        let id = IDS.of_machine::<2>(&request.machine)?;
        Ok(self.with_rows(|rows, _| match id {
            Some([_, id]) => known_as(rows.get(id).cloned(), wanted, &cluster).into_iter().collect(),
            None => created_for(rows.values().cloned(), wanted, &cluster),
        }))
    }
}

#[async_trait]
impl Driver for TinyDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { list: true, ..DriverCapabilities::default() }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        Spec::read(class, &mut problems);
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        let uid = idempotency_token(&request.machine, 0)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let Spec { cluster, size } = Spec::read(&request.class, &mut ClassProblems::default());
        // Reads the rows before it creates. In this cloud nothing is in between.
        self.with_rows(|rows, count| {
            let found = created_for(rows.values().cloned(), wanted, &cluster);
            if !found.is_empty() {
                return Ok(only(found, wanted.name)?.vm());
            }
            *count += 1;
            let (id, machine, owner) = (count.to_string(), wanted.name.to_owned(), request.owner.clone());
            let row = Row { id, machine, uid, owner, cluster, size };
            rows.insert(row.id.clone(), row.clone());
            Ok(row.vm())
        })
    }

    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "rows are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        for row in self.find(request)? {
            self.with_rows(|rows, _| rows.remove(&row.id));
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        Ok(only(self.find(request)?, MachineIdentity::from_machine(&request.machine).name)?.vm())
    }

    async fn list(&self, class: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let cluster = Spec::cluster_of(class)?;
        let listed = |row: &Row| (row.vm().provider_id, row.listed());
        Ok(self.with_rows(|rows, _| rows.values().filter(|row| row.cluster == cluster).map(listed).collect()))
    }

    /// [`Code::Unimplemented`]: this cloud has no volumes, so a drain does not wait for any.
    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "there are no volumes"))
    }
}

fn class(spec: Value) -> MachineClass {
    MachineClass { provider: NAME.to_owned(), provider_spec: spec, ..MachineClass::default() }
}

#[tokio::main]
async fn main() -> ExitCode {
    let driver = TinyDriver::default();
    let subject = ConformanceSubject {
        driver: &driver,
        class: class(json!({"cluster": "shoot", "size": "small"})),
        invalid_class: Some(class(json!({"cluster": "shoot", "size": "medium"}))),
        foreign_class: Some(class(json!({"cluster": "another", "size": "small"}))),
        secret: SecretData::default(),
        volumes: Vec::new(),
        prefix: "tiny".to_owned(),
    };
    let report = run(&subject).await;
    println!("{report}");
    if report.failed().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
