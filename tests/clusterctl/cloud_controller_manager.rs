//! The cloud controller manager of a cluster: the real program, with the arguments and the rights of the manifest that core
//! applied. It writes the provider IDs of Nodes.

use k8s_openapi::{
    ByteString,
    api::{apps::v1::DaemonSet, core::v1::Node},
};
use kube::Api;
use serde_json::Value;

use crate::{
    flavours::StandIn,
    metadata::MetadataService,
    scene::{Scene, name_of},
    simulation::Vm,
    support::{
        identity,
        program::{Program, free_port},
    },
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-controller-manager";
const CONFIGURATION: &str = "--cloud-config=";
/// Taint of a new Node, until it is initialized.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The program of a cloud, and what surrounds it on a VM of the control plane.
pub struct ManagerHost {
    pub program: &'static str,
    pub environment: Vec<(String, String)>,
    /// Lines for its configuration, if it has one: the address of the stand-in.
    pub endpoint: String,
    /// The service at the link-local address of the VM.
    pub metadata: MetadataService,
}

/// The running program. It ends with this.
pub struct CloudControllerManager {
    program: Program,
    _metadata: MetadataService,
}

impl CloudControllerManager {
    /// Starts it on a VM of the control plane with a Node, for the manifest that is applied.
    pub async fn start(scene: &Scene, cloud: &dyn StandIn) -> Self {
        let client = scene.workload().client();
        let set = Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE).get(NAME).await.unwrap();
        let pod = set.spec.unwrap().template.spec.unwrap();
        let vm = scene.until("a Node of the control plane", async || first_of_control_plane(scene, cloud).await).await;
        let host = cloud.manager_on(&vm).await.unwrap();

        let folder = scene.world.folder().join(&scene.name);
        std::fs::create_dir_all(&folder).unwrap();
        let account = pod.service_account_name.unwrap();
        let admin = scene.workload().kubeconfig();
        let credentials = identity::kubeconfig(&client, admin, NAMESPACE, &account, &folder).await;
        let mut arguments = pod.containers[0].args.clone().unwrap();
        for argument in &mut arguments {
            if let Some(path) = argument.strip_prefix(CONFIGURATION) {
                let written = file_on(scene, &vm.machine, path) + &host.endpoint;
                let file = folder.join("cloud.config");
                std::fs::write(&file, written).unwrap();
                *argument = format!("{CONFIGURATION}{}", file.display());
            }
        }
        // In a pod all three are those of its account.
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            arguments.push(format!("--{flag}={}", credentials.display()));
        }
        // All hosts are this one.
        arguments.push(format!("--secure-port={}", free_port()));
        arguments.push(format!("--cert-dir={}", folder.display()));
        let (path, log) = (scene.world.program(host.program), folder.join("cloud-controller-manager.log"));
        let program = Program::start_in(host.environment, path, arguments, log);
        Self { program, _metadata: host.metadata }
    }

    /// It runs, and was allowed all that it asked for.
    pub fn assert_sound(&mut self) {
        self.program.assert_runs();
        let log = self.program.log();
        let refused: Vec<&str> = log.lines().filter(|line| line.contains("forbidden")).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

/// The content of a file that cloud-init writes on the VM of a machine.
fn file_on(scene: &Scene, machine: &str, path: &str) -> String {
    let machine = scene.get("machines.cluster.x-k8s.io", machine);
    let secret = scene.get("secret", machine["spec"]["bootstrap"]["dataSecretName"].as_str().unwrap());
    let data: ByteString = serde_json::from_value(secret["data"]["value"].clone()).unwrap();
    let data: Value = serde_yaml_ng::from_slice(&data.0).unwrap();
    let file = data["write_files"].as_array().unwrap().iter().find(|file| file["path"] == path);
    file.unwrap_or_else(|| panic!("{path} is not in {data:#}"))["content"].as_str().unwrap().to_owned()
}

async fn first_of_control_plane(scene: &Scene, cloud: &dyn StandIn) -> Option<Vm> {
    let machines = scene.selected("machines.cluster.x-k8s.io", "cluster.x-k8s.io/control-plane");
    let vms = cloud.simulation().vms().await;
    let vm = vms.into_iter().find(|vm| machines.iter().any(|machine| vm.machine == name_of(machine)))?;
    let nodes: Api<Node> = Api::all(scene.workload().client());
    nodes.get_opt(&vm.node).await.ok()?.map(|_| vm)
}
