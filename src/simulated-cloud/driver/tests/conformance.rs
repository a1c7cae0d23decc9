//! The simulated driver passes, in its process and over HTTP, and each check fails for a driver that breaks its rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{CloudSimulator, CreateVm, SimulatedCloudClient, SimulationSettings, driver::SimulatedDriver, router};
use mcm_api::machine::MachineClass;
use mcm_driver::conformance::{self, CheckResult, ConformanceOutcome, ConformanceReport, ConformanceSubject, run};
use mcm_driver::{
    code::Code,
    error::DriverError,
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData},
    spec::ClassProblems,
    vm::{ListedVm, Vm, VmsByProviderId},
};

fn cloud() -> Arc<CloudSimulator> {
    let cloud = CloudSimulator::new(1, SimulationSettings::default());
    cloud.replace_control(json!({"latency": {"create": "10ms", "delete": "10ms"}})).unwrap();
    Arc::new(cloud)
}

fn class(namespace: &str, spec: Value) -> MachineClass {
    let mut class = MachineClass { provider: "simulated".to_owned(), provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".to_owned());
    class.metadata.namespace = Some(namespace.to_owned());
    class
}

fn subject(driver: &dyn Driver) -> ConformanceSubject<'_> {
    let volume = |spec: Value| serde_json::from_value(spec).unwrap();
    let csi = |handle: &str| volume(json!({"csi": {"driver": "d", "volumeHandle": handle}}));
    ConformanceSubject {
        driver,
        class: class("ns", json!({"initialize": true})),
        invalid_class: Some(class("ns", json!({"zone": 7, "taints": [{}]}))),
        foreign_class: Some(class("elsewhere", json!({}))),
        secret: SecretData([("userData".to_owned(), b"hunter2-hunter2".to_vec())].into()),
        volumes: vec![
            (csi("vol-1"), Some("vol-1".to_owned())),
            (volume(json!({"hostPath": {"path": "/tmp"}})), None),
            (csi("vol-0"), Some("vol-0".to_owned())),
        ],
        prefix: "conformance".to_owned(),
    }
}

fn assert_all_passed(report: &ConformanceReport) {
    assert_eq!(report.results.len(), conformance::names().count());
    assert!(report.results.iter().all(|one| one.outcome == ConformanceOutcome::Passed), "\n{report}");
}

#[tokio::test(start_paused = true)]
async fn the_simulated_driver_conforms_in_its_process() {
    let cloud = cloud();
    let driver = SimulatedDriver::new(Arc::clone(&cloud) as _);
    assert_all_passed(&run(&subject(&driver)).await);
    assert_eq!(cloud.stats().alive, 0, "the suite leaves nothing behind");
}

#[tokio::test]
async fn the_simulated_driver_conforms_over_http() {
    let cloud = cloud();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(axum::serve(listener, router(Arc::clone(&cloud))).into_future());
    let driver = SimulatedDriver::new(Arc::new(SimulatedCloudClient::new(&address).unwrap()));
    assert_all_passed(&run(&subject(&driver)).await);
    assert_eq!(cloud.stats().alive, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bad_moment_of_the_cloud_is_forgiven() {
    let cloud = cloud();
    cloud.patch_control(json!({"faults": [{"code": "Unavailable", "rate": 0.3}]})).unwrap();
    let driver = SimulatedDriver::new(Arc::clone(&cloud) as _);
    let report = run(&subject(&driver)).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
}

#[tokio::test(start_paused = true)]
async fn unsupported_and_unconfigured_checks_are_skipped() {
    let driver = Broken::new(Defect::CannotListOrInitialize);
    let subject = ConformanceSubject { invalid_class: None, foreign_class: None, volumes: vec![], ..subject(&driver) };
    let report = run(&subject).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    assert_eq!(report.results.iter().filter(|one| one.outcome == ConformanceOutcome::Skipped).count(), 7, "\n{report}");
}

#[test]
fn a_report_names_failures_with_reasons() {
    let result = |name, outcome, detail: &str| CheckResult { name, outcome, detail: detail.to_owned() };
    let report = ConformanceReport {
        results: vec![
            result("one", ConformanceOutcome::Passed, ""),
            result("two", ConformanceOutcome::Failed, "why"),
            result("three", ConformanceOutcome::Skipped, "x"),
        ],
    };
    assert_eq!(report.to_string(), "pass  one\nFAIL  two: why\nskip  three: x\n");
}

/// A defect of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    RefusesEveryClass,
    AcceptsEveryClass,
    OtherCodeForAnInvalidClass,
    ForgetsPaths,
    StatusOfNothingIsUnavailable,
    FindsVmsThatAreNotThere,
    DeleteOfNothingFails,
    CreateWithoutNodeName,
    ForgetsTheToken,
    MakesTwoAtOnce,
    LosesCancelledCreates,
    IgnoresTheUid,
    SecondInitializeFails,
    InitializeChangesTheId,
    UninitializedWithoutVm,
    DeletesNothing,
    SecondDeleteFails,
    DeletesOnlyById,
    CancelledDeleteIsForgotten,
    GoesByNameDespiteTheId,
    ListsAPart,
    ListsOtherNames,
    ListsOtherOwners,
    ListsGoneVms,
    SeesOtherClusters,
    SortsVolumes,
    InventsVolumes,
    TellsSecrets,
    OpensBrackets,
    CannotListOrInitialize,
}

/// The simulated driver with one defect.
struct Broken {
    cloud: Arc<CloudSimulator>,
    inner: SimulatedDriver,
    defect: Defect,
    calls: AtomicUsize,
    ids: parking_lot::Mutex<BTreeMap<String, String>>,
}

impl Broken {
    fn new(defect: Defect) -> Self {
        let cloud = cloud();
        let inner = SimulatedDriver::new(Arc::clone(&cloud) as _);
        Self { cloud, inner, defect, calls: AtomicUsize::new(0), ids: parking_lot::Mutex::default() }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn with_uid(request: &MachineRequest, uid: &str) -> MachineRequest {
        let mut request = request.clone();
        Arc::make_mut(&mut request.machine).metadata.uid = Some(uid.to_owned());
        request
    }

    /// Makes one more VM of the Machine.
    async fn make_another(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let request = CreateVm {
            machine_name: name_of(request),
            namespace: "ns".to_owned(),
            provider_spec: request.class.provider_spec.clone(),
            ..CreateVm::default()
        };
        let made = self.cloud.create(&request).await;
        let vm = made.map_err(|failure| DriverError::new(failure.code, failure.message))?;
        Ok(Vm { provider_id: vm.provider_id, node_name: vm.node_name, ..Vm::default() })
    }
}

fn name_of(request: &MachineRequest) -> String {
    request.machine.metadata.name.clone().unwrap()
}

fn failure<T>(code: Code, text: &str) -> Result<T, DriverError> {
    Err(DriverError::new(code, text))
}

#[async_trait]
impl Driver for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn capabilities(&self) -> DriverCapabilities {
        let can = !self.has(Defect::CannotListOrInitialize);
        DriverCapabilities { list: can, initialize: can, ..DriverCapabilities::default() }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = self.inner.validate(class);
        match self.defect {
            Defect::RefusesEveryClass => problems.error("providerSpec", "bad"),
            Defect::AcceptsEveryClass => problems.errors.clear(),
            Defect::ForgetsPaths => problems.errors.iter_mut().for_each(|one| one.path.clear()),
            _ => {}
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let name = name_of(request);
        let is_first = || !self.cloud.state().vms.iter().any(|vm| vm.machine_name == name);
        match self.defect {
            Defect::OtherCodeForAnInvalidClass => {
                self.inner.create(request).await.map_err(|error| DriverError { code: Code::Internal, ..error })
            }
            Defect::CreateWithoutNodeName => {
                self.inner.create(request).await.map(|vm| Vm { node_name: String::new(), ..vm })
            }
            Defect::ForgetsTheToken => self.make_another(request).await,
            Defect::MakesTwoAtOnce if is_first() => {
                tokio::task::yield_now().await;
                if is_first() { self.inner.create(request).await } else { self.make_another(request).await }
            }
            Defect::LosesCancelledCreates => {
                // The VM is known from the end of the call on.
                let known = self.ids.lock().get(&name).cloned();
                if let Some(id) = known {
                    return Ok(Vm { provider_id: id, node_name: name, ..Vm::default() });
                }
                let vm = self.make_another(request).await?;
                self.ids.lock().insert(name, vm.provider_id.clone());
                Ok(vm)
            }
            Defect::ListsGoneVms => {
                let vm = self.inner.create(request).await?;
                self.ids.lock().insert(vm.provider_id.clone(), name);
                Ok(vm)
            }
            Defect::IgnoresTheUid => self.inner.create(&Self::with_uid(request, &name)).await,
            Defect::TellsSecrets => {
                let text = String::from_utf8(request.secret.0.get("userData").unwrap().clone()).unwrap();
                self.inner.create(request).await.map_err(|error| DriverError { message: text, ..error })
            }
            Defect::OpensBrackets => {
                self.inner.create(request).await.map_err(|error| DriverError { message: "a[".into(), ..error })
            }
            _ => self.inner.create(request).await,
        }
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let vm = self.inner.initialize(request).await?;
        match self.defect {
            Defect::SecondInitializeFails if self.calls.fetch_add(1, SeqCst) > 0 => failure(Code::Internal, "again"),
            Defect::InitializeChangesTheId => Ok(Vm { provider_id: "simulated:///other".into(), ..vm }),
            _ => Ok(vm),
        }
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let is_there = !matches!(self.inner.status(request).await, Err(error) if error.code == Code::NotFound);
        match self.defect {
            Defect::DeleteOfNothingFails | Defect::SecondDeleteFails if !is_there => {
                failure(Code::NotFound, "there is nothing to delete")
            }
            Defect::DeletesNothing => Ok(None),
            Defect::DeletesOnlyById if request.machine.spec.provider_id.is_empty() => Ok(None),
            Defect::CancelledDeleteIsForgotten => {
                // Taken for done from the first call on.
                let id = request.machine.spec.provider_id.clone();
                if !id.is_empty() && self.ids.lock().insert(id, String::new()).is_some() {
                    return Ok(None);
                }
                tokio::task::yield_now().await;
                self.inner.delete(request).await
            }
            Defect::GoesByNameDespiteTheId => {
                let mut request = request.clone();
                Arc::make_mut(&mut request.machine).spec.provider_id.clear();
                self.inner.delete(&request).await
            }
            Defect::SeesOtherClusters => {
                let mut request = request.clone();
                Arc::make_mut(&mut request.machine).metadata.namespace = Some("ns".to_owned());
                self.inner.delete(&request).await
            }
            _ => self.inner.delete(request).await,
        }
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let result = self.inner.status(request).await;
        match (self.defect, result) {
            (Defect::StatusOfNothingIsUnavailable, Err(error)) if error.code == Code::NotFound => {
                failure(Code::Unavailable, "who knows")
            }
            (Defect::FindsVmsThatAreNotThere, Err(error)) if error.code == Code::NotFound => Ok(Vm::default()),
            (Defect::UninitializedWithoutVm, Err(error)) if error.code == Code::Uninitialized => {
                failure(Code::Uninitialized, "without VM")
            }
            (_, result) => result,
        }
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let mut class = class.clone();
        if self.has(Defect::SeesOtherClusters) {
            class.metadata.namespace = Some("ns".to_owned());
        }
        let mut all = self.inner.list(&class, secret).await?;
        match self.defect {
            Defect::ListsAPart if all.len() > 2 => drop(all.pop_last()),
            Defect::ListsOtherNames => all.values_mut().for_each(|vm| vm.machine.insert(0, 'x')),
            Defect::ListsOtherOwners => {
                all.values_mut().for_each(|vm| vm.owner = Some("another".to_owned()));
            }
            Defect::ListsGoneVms => {
                let ids = self.ids.lock().clone();
                all.extend(ids.into_iter().map(|(id, name)| (id, ListedVm::unmarked(name))));
            }
            _ => {}
        }
        Ok(all)
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        let mut ids = self.inner.volume_ids(specs).await?;
        match self.defect {
            Defect::SortsVolumes => ids.sort_unstable(),
            Defect::InventsVolumes => ids.resize(specs.len(), "unknown".to_owned()),
            _ => {}
        }
        Ok(ids)
    }
}

/// Each defect with a check that must find it.
const FOUND_BY: &[(Defect, &str)] = &[
    (Defect::RefusesEveryClass, "validate accepts a class from which VMs can be created"),
    (Defect::AcceptsEveryClass, "an invalid class is rejected with paths, and no VM is created from it"),
    (Defect::OtherCodeForAnInvalidClass, "an invalid class is rejected with paths, and no VM is created from it"),
    (Defect::ForgetsPaths, "an invalid class is rejected with paths, and no VM is created from it"),
    (Defect::StatusOfNothingIsUnavailable, "status of a machine without a VM is NotFound"),
    (Defect::FindsVmsThatAreNotThere, "status of a machine without a VM is NotFound"),
    (Defect::DeleteOfNothingFails, "delete of a machine without a VM succeeds"),
    (Defect::CreateWithoutNodeName, "create returns a VM that status finds, by name and by provider ID"),
    (Defect::UninitializedWithoutVm, "create returns a VM that status finds, by name and by provider ID"),
    (Defect::ForgetsTheToken, "a second create finds the VM of the first"),
    (Defect::MakesTwoAtOnce, "concurrent creates create one VM"),
    (Defect::LosesCancelledCreates, "a create that was cancelled is found by the next"),
    (Defect::IgnoresTheUid, "a machine with another UID does not get the VM"),
    (Defect::SecondInitializeFails, "initialize can be repeated and keeps the provider ID"),
    (Defect::InitializeChangesTheId, "initialize can be repeated and keeps the provider ID"),
    (Defect::DeletesNothing, "delete removes the VM, and can be repeated"),
    (Defect::SecondDeleteFails, "delete removes the VM, and can be repeated"),
    (Defect::DeletesOnlyById, "delete without a provider ID removes the VM"),
    (Defect::CancelledDeleteIsForgotten, "a delete that was cancelled is completed by the next"),
    (Defect::GoesByNameDespiteTheId, "a provider ID identifies exactly one VM"),
    (Defect::ListsAPart, "list contains every VM that was created, with the name of its machine"),
    (Defect::ListsOtherNames, "list contains every VM that was created, with the name of its machine"),
    (Defect::ListsOtherOwners, "list returns the owner that create was given"),
    (Defect::ListsGoneVms, "list contains no VM that was deleted"),
    (Defect::SeesOtherClusters, "VMs of another cluster are neither listed nor deleted"),
    (Defect::SortsVolumes, "volume_ids keeps the order and leaves out unknown types"),
    (Defect::InventsVolumes, "volume_ids keeps the order and leaves out unknown types"),
    (Defect::TellsSecrets, "no text contains a secret"),
    (Defect::OpensBrackets, "brackets in texts come in pairs"),
];

#[tokio::test(start_paused = true)]
async fn each_check_finds_the_defect_that_it_is_for() {
    let mut missed = Vec::new();
    for (defect, check) in FOUND_BY {
        let report = run(&subject(&Broken::new(*defect))).await;
        if !report.failed().contains(check) {
            missed.push(format!("{defect:?} is not found by {check:?}:\n{report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn each_check_has_a_defect_that_it_finds() {
    let covered: BTreeSet<&str> = FOUND_BY.iter().map(|(_, check)| *check).collect();
    assert_eq!(conformance::names().filter(|name| !covered.contains(name)).collect::<Vec<_>>(), [""; 0]);
}
