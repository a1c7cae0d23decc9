//! A user of Cluster API.

use std::{path::Path, sync::LazyLock};

use serde_json::{Value, json};

use crate::{
    page::Page,
    repository,
    shell::{Release, Shell},
    support::{guard::Folder, program::free_port, wait},
    world::World,
};

/// Files of the world, which is never dropped.
static FOLDER: LazyLock<Folder> = LazyLock::new(|| Folder::new("mcm-pages-"));

#[tokio::test(flavor = "multi_thread")]
async fn a_first_cluster_has_workers_with_nodes() {
    let folder = FOLDER.path();
    let release = Release::on_disk().copy(folder);
    let world = World::empty(folder.to_owned(), &[]).await;
    // clusterctl takes cert-manager as installed.
    world.install_certificate_kinds().await;
    std::fs::copy(world.workload.kubeconfig(), release.join("workload.kubeconfig")).unwrap();
    let [cloud, health, diagnostics] = std::array::from_fn(|_| format!("127.0.0.1:{}", free_port()));
    let page = Page::sections("docs/cluster-api/first-cluster.md", &["Install the provider", "Simulated workers"])
        .with("http://127.0.0.1:10270", &format!("http://{cloud}"))
        .with("mcm simulated-cloud", &format!("mcm simulated-cloud --address={cloud}"))
        .with(
            "mcm capi-manager",
            &format!("mcm capi-manager --health-addr={health} --diagnostics-address={diagnostics}"),
        );
    let mut shell = Shell::start(folder, &release, Some(world.management.kubeconfig()));
    shell.run("mkdir mcm && tar -xzf mcm-*-linux-*.tar.gz -C mcm && export PATH=$PWD/mcm:$PATH");
    let mut first = None;
    for command in page.commands() {
        if command.starts_with("kubectl delete cluster") {
            first = Some(shell.elapsed());
        }
        match command.strip_suffix(" &") {
            Some(program) => shell.start_beside(program),
            None => {
                let printed = shell.run(command);
                if command.starts_with("kubectl get nodes") {
                    assert_eq!(printed.matches(" Ready ").count(), 3, "{printed}");
                }
            }
        }
        if command.contains("/clusterctl.yaml") {
            add_other_providers(folder);
        }
        if command.starts_with("clusterctl init") {
            world.start_managers().await;
        }
    }
    wait::until("all Nodes to be deleted", async || world.nodes.all("", "nodes", "").is_empty().then_some(())).await;
    shell.interrupt();
    shell.report("docs/cluster-api/first-cluster.md", first.unwrap());
}

/// The releases of core and kubeadm, which clusterctl would download, are on disk as well.
fn add_other_providers(home: &Path) {
    let file = home.join(".config/cluster-api/clusterctl.yaml");
    let read = |file: &Path| -> Value { serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap() };
    let (mut of_page, mut others) = (read(&file), read(&repository::config(home)));
    let list = of_page["providers"].as_array_mut().unwrap();
    assert_eq!((list.len(), &list[0]["name"]), (1, &json!("mcm")));
    list.extend(others["providers"].as_array().unwrap().iter().filter(|one| one["name"] != "mcm").cloned());
    of_page["cert-manager"] = others["cert-manager"].take();
    std::fs::write(file, serde_yaml_ng::to_string(&of_page).unwrap()).unwrap();
}
