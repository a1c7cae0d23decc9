//! A client and a server in one process.

mod between;
mod calls;
mod certificates;
mod outages;
mod sockets;
mod tls;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::channel::oneshot;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    runtime::{self, Runtime},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    address::{DriverAddress, DriverEndpoint, ListenAddress},
    client::{RemoteDriver, TextTreatment},
    line::{KeeperTiming, PingTiming},
    listen::{ListenError, ListenOptions, serve},
    tls::TlsFiles,
};
use crate::catalogue::DriverCatalogue;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    capacity::{GpuCapacity, VmCapacity},
    code::Code,
    error::DriverError,
    guard::DriverGuards,
    inspection::{ResourceFinding, ResourcePresence},
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData},
    spec::ClassProblems,
    vm::{ListedVm, Vm, VmsByProviderId},
};

fn catalogue(driver: Arc<dyn Driver>) -> DriverCatalogue {
    DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved())
}

/// Quick, so that tests do not wait.
const TIMING: KeeperTiming = KeeperTiming {
    period: Duration::from_millis(100),
    limit: Duration::from_millis(500),
    misses: 2,
    pauses: (Duration::from_millis(5), Duration::from_millis(20)),
    pings: PingTiming { every: Duration::from_millis(50), limit: Duration::from_millis(500) },
};

/// Far below the limits of calls, which are minutes.
const SOON: Duration = Duration::from_secs(10);

/// A server, until it is dropped.
struct Server {
    address: DriverAddress,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ListenError>>,
    /// A separate runtime, as in another process: its remaining connections end with it.
    runtime: Option<Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    async fn start(options: ListenOptions, driver: Arc<dyn Driver>) -> Result<Self, ListenError> {
        let stop = CancellationToken::new();
        let (started, address) = oneshot::channel();
        let ended = stop.clone();
        let serving = async move {
            let started = |address: &str| started.send(address.parse().unwrap()).unwrap();
            serve(&options, catalogue(driver), started, &ended).await
        };
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let task = runtime.spawn(serving);
        let mut server = Self { address: DriverAddress::Unix(PathBuf::new()), stop, task, runtime: Some(runtime) };
        match address.await {
            Ok(address) => {
                server.address = address;
                Ok(server)
            }
            Err(_) => Err((&mut server.task).await.unwrap().unwrap_err()),
        }
    }

    async fn on_socket(path: &Path, driver: Arc<dyn Driver>) -> Self {
        let listen = ListenAddress::Unix(path.to_owned());
        let options = ListenOptions { listen, tls: TlsFiles::default(), is_insecure: false, has_group_access: false };
        // A server that was dropped closes its socket a moment later.
        let start = async || loop {
            match Self::start(options.clone(), Arc::clone(&driver)).await {
                Err(ListenError::InUse(_)) => tokio::task::yield_now().await,
                started => break started.unwrap(),
            }
        };
        tokio::time::timeout(SOON, start()).await.unwrap()
    }

    /// As after SIGTERM.
    async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("driver.sock");
    (folder, path)
}

fn client(name: &str, address: DriverAddress) -> RemoteDriver {
    open(&DriverEndpoint::new(name, address))
}

fn open(endpoint: &DriverEndpoint) -> RemoteDriver {
    RemoteDriver::open_with(endpoint, TextTreatment::Cleaned, &DriverGuards::unobserved().observer, TIMING)
}

fn client_of(name: &str, path: &Path) -> RemoteDriver {
    client(name, DriverAddress::Unix(path.to_owned()))
}

fn request() -> MachineRequest {
    let machine = json!({"metadata": {"name": "m", "namespace": "n", "uid": "u"}, "spec": {}});
    let class = json!({"metadata": {"name": "c", "namespace": "n"}, "provider": "odd", "providerSpec": {}});
    MachineRequest {
        machine: Arc::new(serde_json::from_value(machine).unwrap()),
        class: Arc::new(serde_json::from_value(class).unwrap()),
        secret: SecretData([("key".to_owned(), b"hunter2-hunter2".to_vec())].into()),
        owner: "team-a".to_owned(),
        may_pause: true,
    }
}

/// Repeats until the driver responds.
async fn until_ok<T>(call: impl AsyncFn() -> Result<T, DriverError>) -> T {
    let calls = async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.code.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), calls).await.unwrap()
}

type Answer<T> = Result<T, DriverError>;

/// A driver with configured results.
struct Odd {
    vm: Mutex<Answer<Vm>>,
    list: VmsByProviderId,
    /// The number of polls.
    looks: Mutex<usize>,
    /// Provider IDs with the requested tags.
    tagged: Mutex<Vec<(String, bool)>>,
    /// How long each call takes.
    latency: Mutex<Duration>,
    calls: Mutex<usize>,
}

impl Odd {
    fn new() -> Self {
        let vm = Vm { provider_id: "odd:///1".to_owned(), node_name: "node-1".to_owned(), ..Vm::default() };
        Self {
            vm: Mutex::new(Ok(vm)),
            list: VmsByProviderId::new(),
            looks: Mutex::default(),
            tagged: Mutex::default(),
            latency: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    fn answering(vm: Answer<Vm>) -> Self {
        Self { vm: Mutex::new(vm), ..Self::new() }
    }

    fn listing(list: &[(&str, &str)]) -> Self {
        let list = list.iter().map(|(id, name)| ((*id).to_owned(), ListedVm::unmarked(*name))).collect();
        Self { list, ..Self::new() }
    }

    fn taking(latency: Duration) -> Self {
        Self { latency: Mutex::new(latency), ..Self::new() }
    }

    async fn answer(&self) -> Answer<Vm> {
        *self.calls.lock() += 1;
        let latency = *self.latency.lock();
        tokio::time::sleep(latency).await;
        self.vm.lock().clone()
    }
}

#[async_trait]
impl Driver for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn capabilities(&self) -> DriverCapabilities {
        *self.looks.lock() += 1;
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        if class.provider_spec.get("bad").is_some() {
            problems.error("providerSpec.bad", "two\nlines");
        }
        problems
    }

    async fn create(&self, _: &MachineRequest) -> Answer<Vm> {
        self.answer().await
    }

    async fn initialize(&self, _: &MachineRequest) -> Answer<Vm> {
        self.answer().await
    }

    async fn delete(&self, _: &MachineRequest) -> Answer<Option<String>> {
        self.answer().await.map(|vm| vm.last_known_state)
    }

    async fn status(&self, _: &MachineRequest) -> Answer<Vm> {
        self.answer().await
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Answer<VmsByProviderId> {
        self.answer().await.map(|_| self.list.clone())
    }

    async fn inspect(&self, _: &MachineClass, _: &SecretData) -> Answer<Vec<ResourceFinding>> {
        let finding = |path: &str, presence, text: &str| ResourceFinding {
            path: path.to_owned(),
            presence,
            text: text.to_owned(),
        };
        Ok(vec![
            finding("providerSpec.image", ResourcePresence::Present, "here"),
            finding("providerSpec.network", ResourcePresence::Missing, "no\nnetwork"),
            finding("Secret", ResourcePresence::Unknown, "key hunter2-hunter2"),
        ])
    }

    async fn capacity(&self, class: &MachineClass, _: &SecretData) -> Answer<VmCapacity> {
        let gpus = Some(GpuCapacity::made_by("nvidia", 2));
        let names = ["m", "r"].map(str::to_owned);
        let [instance_type, region] = names;
        let cpus = class.provider_spec["cpus"].as_u64().unwrap_or(4);
        Ok(VmCapacity {
            instance_type,
            region,
            cpus,
            memory_mib: 8192,
            gpus,
            architecture: Some("arm64"),
            ..VmCapacity::default()
        })
    }

    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Answer<()> {
        self.tagged.lock().push((request.machine.spec.provider_id.clone(), is_listed));
        Ok(())
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Answer<Vec<String>> {
        Ok(vec!["one".to_owned(), "too many".to_owned()])
    }
}
