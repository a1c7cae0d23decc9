//! The samples as a user applies them, and kubectl's output about them.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::support::{control_plane::ControlPlane, world::World};

const SAMPLES: [(&str, &str); 4] = [
    ("secret", include_str!("../../templates/samples/secret.yaml")),
    ("machine-class", include_str!("../../templates/samples/machine-class.yaml")),
    ("machine-deployment", include_str!("../../templates/samples/machine-deployment.yaml")),
    ("machine", include_str!("../../templates/samples/machine.yaml")),
];

#[tokio::test]
async fn the_samples_work_and_kubectl_prints_them_in_the_reference_s_columns() {
    let world = World::new("samples").await;
    let _manager = world.run(&[]).await;
    for (name, sample) in SAMPLES {
        let sample = sample.replace("namespace: default", &format!("namespace: {}", world.namespace));
        kubectl(&world, &["apply", "-f", "-"], &sample).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    world
        .until("all machines of the samples to serve", |scene| {
            scene.complete("workers", 3) && scene.machines.len() == 4 && scene.available() == 4
        })
        .await;
    world.assert_vms_match().await;

    let get = |what: &[&str]| kubectl(&world, &[&["get"], what].concat(), "").unwrap();
    assert_eq!(header(&get(&["mc"])), ["NAME", "STATUS", "AGE", "NODE"]);
    assert_eq!(
        header(&get(&["mc", "-o", "wide"])),
        ["NAME", "STATUS", "AGE", "NODE", "PROVIDERID", "CLASS", "LAST", "OPERATION"]
    );
    assert_eq!(header(&get(&["mcs"])), ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]);
    assert_eq!(header(&get(&["mcd"])), ["NAME", "READY", "DESIRED", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(header(&get(&["mcc"])), ["NAME", "PROVIDER", "TYPE", "ZONE", "AGE"]);

    let deployments = get(&["mcd", "--no-headers"]);
    let columns: Vec<&str> = deployments.split_whitespace().take(5).collect();
    assert_eq!(columns, ["workers", "3", "3", "3", "3"]);
    let together = get(&["mcm"]);
    for line in [
        "machine.machine.sapcloud.io/bastion",
        "machinedeployment.machine.sapcloud.io/workers",
        "machineclass.machine.sapcloud.io/worker",
    ] {
        assert!(together.contains(line), "{line} is not in\n{together}");
    }

    kubectl(&world, &["scale", "mcd/workers", "--replicas=1"], "").unwrap();
    world.until("the deployment to be scaled", |scene| scene.complete("workers", 1) && scene.machines.len() == 2).await;
    kubectl(&world, &["delete", "mcd/workers", "mc/bastion", "--timeout=120s"], "").unwrap();
    assert_eq!(world.cloud.count("/alive").await, 0);
}

fn header(table: &str) -> Vec<&str> {
    table.lines().next().unwrap().split_whitespace().collect()
}

/// Standard output, or the error.
fn kubectl(world: &World, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(ControlPlane::programs().unwrap().join("kubectl"))
        .arg("--kubeconfig")
        .arg(world.admin())
        .args(["--namespace", &world.namespace])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
