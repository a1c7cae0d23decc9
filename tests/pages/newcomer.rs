//! A user with neither MCM nor Cluster API.

use crate::{
    page::Page,
    shell::{Release, Shell, architecture},
    support::{control_plane::ControlPlane, guard::Folder, program::free_port},
};

const ARCHIVE: &str = "linux-amd64";

fn archive() -> String {
    format!("linux-{}", architecture())
}

/// The first screen of the README: a demo without a compiler, on a control plane that it starts.
#[test]
fn the_demo_of_a_release_makes_machines_with_nodes() {
    let folder = Folder::new("mcm-pages-");
    let release = Release::on_disk().copy(folder.path());
    let page = Page::sections("docs/install.md", &["Archive"]).with(ARCHIVE, &archive());
    let mut shell = Shell::start(folder.path(), &release, None);
    let begun = std::time::Instant::now();
    let mut first = None;
    for command in page.commands() {
        let printed = shell.run_until(command, |line| {
            if line.ends_with("→ Running") {
                first.get_or_insert_with(|| begun.elapsed());
            }
        });
        if command == "mcm demo" {
            assert!(printed.contains("no machine, node or VM is left"), "{printed}");
        }
    }
    shell.report("docs/install.md", first.unwrap());
}

/// The tutorial, on a cluster of the reader.
#[tokio::test]
async fn the_first_pool_has_nodes_and_leaves_nothing() {
    let folder = Folder::new("mcm-pages-");
    let release = Release::on_disk().copy(folder.path());
    let control = ControlPlane::apart_with(&["--with", "kube-controller-manager"]).await.unwrap();
    let page = Page::read("docs/tutorials/first-pool.md")
        .with(ARCHIVE, &archive())
        .with("mcm run", &format!("mcm run --port={}", free_port()));
    let mut shell = Shell::start(folder.path(), &release, Some(control.kubeconfig()));
    let mut first = None;
    for command in page.commands() {
        if command.starts_with("mcm run") {
            shell.start_beside(command);
            continue;
        }
        let printed = shell.run(command);
        if command == "kubectl get nodes" {
            first = Some(shell.elapsed());
            assert_eq!(printed.matches(" Ready ").count(), 5, "{printed}");
        }
    }
    // "Then end mcm run with Ctrl-C."
    shell.interrupt();
    assert!(shell.run("kubectl get nodes").contains("No resources found"));
    shell.report("docs/tutorials/first-pool.md", first.unwrap());
}
