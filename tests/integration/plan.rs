//! `mcm plan` on a real control plane: its prediction of a change is compared with the actions of the controllers.

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    identity, objects,
    plans::{Change, Rng, any_change, compare, plan},
    program::mcm,
    scene::Scene,
    world::World,
};

/// How many random changes are compared, unless `MCM_PLANS` sets another number.
const CHANGES: u64 = 10;
/// A pause between two acts that ends a round is shorter.
const SLOW_BOOT: &str = "11s";

/// Longer than 200 machines take on a busy computer.
const MANY_SERVE: Duration = Duration::from_secs(180);

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn what_a_plan_says_about_random_changes_is_what_then_happens() {
    let world = World::new("plan").await;
    let _manager = world.run(&[]).await;
    world.pool(3, json!({})).await;
    world.settled(3, "small").await;
    let seed = number("MCM_PLANS_SEED", 1);
    let mut rng = Rng(seed);
    for at in 0..number("MCM_PLANS", CHANGES) {
        let change = any_change(&mut rng);
        let wrong = compare(&world, &change).await;
        assert!(wrong.is_empty(), "seed {seed}, change {at}: {change:?}: {wrong:#?}");
    }
}

/// In a cloud whose machines need their time, a plan has many rounds. Each pair of bounds leads to others.
#[tokio::test]
async fn the_rounds_of_a_plan_come_in_its_order() {
    let world = World::patient("plan-rounds").await;
    let _manager = world.run(&[]).await;
    world.apply(objects::secret("pool")).await;
    for name in ["small", "large"] {
        let mut class = objects::class(name);
        class["providerSpec"]["bootLatency"] = SLOW_BOOT.into();
        world.apply(class).await;
    }
    world.apply(objects::deployment("pool", 3)).await;
    let seed = number("MCM_PLANS_SEED", 1);
    let mut rng = Rng(seed);
    let mut changes: Vec<Change> = [("large", 1, 0), ("small", 0, 1), ("large", 1, 1)]
        .map(|(class, surge, unavailable)| {
            vec![
                ("template.spec.class.name".to_owned(), json!(class)),
                ("strategy.rollingUpdate.maxSurge".to_owned(), json!(surge)),
                ("strategy.rollingUpdate.maxUnavailable".to_owned(), json!(unavailable)),
            ]
        })
        .into();
    if env::var_os("MCM_PLANS").is_some() {
        changes = (0..number("MCM_PLANS", CHANGES)).map(|_| any_change(&mut rng)).collect();
    }
    for (at, change) in changes.iter().enumerate() {
        let wrong = compare(&world, change).await;
        assert!(wrong.is_empty(), "seed {seed}, change {at}: {change:?}: {wrong:#?}");
    }
}

#[tokio::test]
async fn a_change_that_the_api_server_refuses_is_refused_and_fail_on_exits_with_3() {
    let world = World::new("plan-refused").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let arguments = |set: &str| ["pool", "--set", set].map(str::to_owned).to_vec();
    let (code, answer) = plan(&world, &arguments("replicas=many")).await;
    assert_eq!((code, &answer["objects"][0]["verdict"]), (3, &json!("Refused")), "{answer}");
    for misspelled in ["template.spec.drainTimout=5m", "template.spec.clas.name=large"] {
        let (code, answer) = plan(&world, &arguments(misspelled)).await;
        let object = &answer["objects"][0];
        assert_eq!((code, &object["verdict"]), (3, &json!("Refused")), "{answer}");
        assert!(object["reason"].as_str().unwrap().contains("unknown field"), "{answer}");
    }
    let mut replace = arguments("template.spec.class.name=large");
    let (code, answer) = plan(&world, &replace).await;
    assert_eq!((code, &answer["objects"][0]["verdict"]), (0, &json!("Replaces")), "{answer}");
    assert_eq!(answer["notes"], json!([]), "{answer}");
    replace.push("--fail-on=replace".to_owned());
    assert_eq!(plan(&world, &replace).await.0, 3);
}

/// Runs `mcm plan -A ...`; its exit code, standard output and standard error.
async fn plan_all(kubeconfig: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(mcm());
    let output = command.args(["plan", "-A", "--kubeconfig"]).arg(kubeconfig).args(words).output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), out, err)
}

#[tokio::test]
async fn a_plan_for_all_namespaces_names_those_that_the_user_may_not_read() {
    let world = World::new("plan-all").await;
    let manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let viewer = identity::viewer(&world.client, world.admin(), &world.namespace, false, world.folder()).await;
    let (code, _, error) = plan_all(&viewer, &[]).await;
    assert!(code == 1 && error.contains("\nhint: name a namespace with -n instead of -A\n"), "{code} {error}");

    identity::may_list_namespaces(&world.client, &world.namespace, "viewer").await;
    let (code, text, error) = plan_all(&viewer, &["-o", "json", "--fail-on=change"]).await;
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!((code, &all["objects"]), (0, &json!([])), "{all}");
    assert_eq!((&all["settled"]["deployments"], &all["complete"]), (&json!(1), &json!(false)), "{all}");
    let is_unread = |name: &str| all["unread"].as_array().unwrap().contains(&json!(name));
    assert!(is_unread("kube-system") && !is_unread(&world.namespace), "{all}");

    drop(manager);
    world.scale(3).await;
    let (code, text, error) = plan_all(&viewer, &["--fail-on=change"]).await;
    assert_eq!(code, 3, "{text}{error}");
    let head = format!("MachineDeployment {}/pool", world.namespace);
    let is_scaled = |line: &str| line.starts_with(&head) && line.ends_with("SCALES 2 → 3");
    assert!(text.starts_with("cluster mcm, all namespaces\n") && text.lines().any(is_scaled), "{text}");
    let here = ["plan", "-n", &world.namespace, "--kubeconfig"];
    let output = Command::new(mcm()).args(here).arg(world.admin()).output().await.unwrap();
    let of_one = String::from_utf8(output.stdout).unwrap();
    assert!(of_one.starts_with(&format!("cluster mcm, namespace {}\n", world.namespace)), "{of_one}");
    assert!(of_one.lines().any(|line| line.starts_with(&head)), "{of_one}");
    assert!(!of_one.contains("  settled  "), "nothing is settled: {of_one}");
}

#[tokio::test]
async fn files_of_several_namespaces_are_planned_together() {
    let world = World::new("plan-folder").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let other = format!("{}-other", world.namespace);
    objects::apply(&world.client, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": other } }))
        .await;
    let within = |namespace: &str, replicas: u32| {
        let mut pool = objects::deployment("pool", replicas);
        pool["metadata"]["namespace"] = json!(namespace);
        pool.to_string()
    };
    let file = world.folder().join("pools.yaml");
    std::fs::write(&file, [within(&world.namespace, 3), within(&other, 4)].join("\n---\n")).unwrap();
    let run = async |words: &[&str]| {
        let mut command = Command::new(mcm());
        command.args(["plan", "-f"]).arg(&file).arg("--kubeconfig").arg(world.admin());
        let output = command.args(words).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let markdown = run(&["-o", "markdown"]).await;
    assert!(
        markdown.starts_with("### mcm plan: create 5, delete 0, update 0 in place\n\ncluster mcm, 2 namespaces, at"),
        "{markdown}"
    );
    for (namespace, effect) in [(world.namespace.as_str(), "SCALES 2 → 3"), (other.as_str(), "CREATES 4 machines")] {
        assert!(markdown.contains(&format!("#### MachineDeployment {namespace}/pool: {effect}")), "{markdown}");
    }
    assert_eq!(run(&["-n", &other]).await, "", "with -n, files of other namespaces are refused");
}

#[tokio::test]
async fn a_plan_of_200_machines_takes_seconds() {
    let world = World::undisturbed("plan-many").await;
    let _manager = world.run(&[]).await;
    world.pool(200, json!({})).await;
    // A deployment whose status is behind is played with all machines.
    let is_told = |scene: &Scene| (scene.settled(200, "small") && scene.complete("pool", 200)).then_some(());
    world.scene.find("200 machines that serve, in all statuses", MANY_SERVE, is_told).await;
    let (class, quarter) = ("template.spec.class.name=large", "25%");
    let wide = ["maxSurge", "maxUnavailable"].map(|bound| format!("strategy.rollingUpdate.{bound}={quarter}"));
    let sets: [(&[&str], &str); 2] =
        [(&[class], "the rounds of the others repeat"), (&[class, &wide[0], &wide[1]], "were played, each for")];
    for (changes, remark) in sets {
        let sets = changes.iter().flat_map(|change| ["--set", change]);
        let words: Vec<String> = ["pool"].into_iter().chain(sets).map(str::to_owned).collect();
        let begun = Instant::now();
        let (code, answer) = plan(&world, &words).await;
        let took = begun.elapsed();
        let object = &answer["objects"][0];
        assert_eq!((code, &object["verdict"]), (0, &json!("Replaces")), "{answer}");
        assert_eq!(
            (&object["summary"]["create"], &object["summary"]["delete"]),
            (&json!(200), &json!(200)),
            "{answer}"
        );
        let said = object["remarks"][0].as_str().unwrap();
        assert!(said.starts_with("all 200 machines are alike") && said.contains(remark), "{answer}");
        assert!(took < Duration::from_secs(180), "{took:?}");
        println!("a plan of 200 machines took {took:?}: {words:?}");
    }
}

#[tokio::test]
async fn a_plan_plays_with_the_flags_of_a_file_and_names_what_the_cloud_does_not_answer() {
    let world = World::new("plan-flags").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "--machine-drain-timeout=45m").unwrap();
    let path = file.path().to_str().unwrap();
    let words = ["pool", "--set", "template.spec.class.name=large", "--live", "--policy", path].map(str::to_owned);
    let (_, answer) = plan(&world, &words).await;
    assert_eq!(answer["flags"], json!(format!("those of {path}")));
    let blockers = answer["objects"][0]["blockers"].to_string();
    assert!(
        blockers.contains("the cloud of class large: cloud: "),
        "the simulated cloud has nothing to look at: {answer}"
    );
}
