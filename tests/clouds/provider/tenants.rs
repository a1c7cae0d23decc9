//! Two tenants in one manager: neither can use the credentials of the other, nor those of the manager.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{INFRASTRUCTURE, World};
use crate::{
    aws::Ec2,
    gcp,
    simulation::Simulation,
    support::{objects, wait},
};

/// Has credentials of its own.
const OURS: &str = "team-a";
/// Tries to use those of others.
const OTHERS: &str = "team-b";
/// May use the credentials of the manager.
const OPERATORS: &str = "operators";

/// A token below a folder that the operator allows.
fn token_file(world: &World, name: &str) -> String {
    let path = world.folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "a token of another").unwrap();
    path.display().to_string()
}

/// Waits until an MCMMachine is refused for a reason with this text.
async fn is_refused(world: &World, name: &str, text: &str) {
    wait::until(&format!("{name} to be refused"), async || {
        let shown = world.find(OTHERS, name).await;
        let [status, _, message] = shown.condition("Ready")?;
        (status == "False" && message.contains(text)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tenant_uses_the_credentials_of_another_or_of_the_manager() {
    let (ec2, google) = (Ec2::start().await, gcp::World::new().await);
    let mut world = World::new("tenants").await;
    let (file, file_of_a_tenant) = (token_file(&world, "token"), token_file(&world, &format!("{OURS}/token")));
    let folder = format!("--credential-files-folder={}", world.folder.display());
    let credentials = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "key-of-the-manager"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_ENDPOINT_URL", ec2.url.as_str()),
    ];
    let operators = format!("--process-credentials-namespaces={OPERATORS}");
    world.start(&[&operators, &folder, "--vm-check-period=24h"], &credentials).await;
    for namespace in [OURS, OTHERS, OPERATORS] {
        world.tenant(namespace).await;
    }
    world.credentials(OURS, "cloud", ec2.secret()).await;
    let own = json!({ "credentialsSecretRef": { "name": "cloud", "namespace": OURS } });
    world.class(OURS, "small", &ec2, own.clone()).await;
    world.machine(OURS, "m", "small", json!({})).await;
    world.class(OPERATORS, "small", &ec2, json!({})).await;
    world.machine(OPERATORS, "m", "small", json!({})).await;
    for namespace in [OURS, OPERATORS] {
        wait::until("a VM of each tenant with credentials", async || {
            world.find(namespace, "m").await.is_ready().then_some(())
        })
        .await;
    }
    assert_eq!(ec2.proxy.calls("RunInstances"), 2);
    let calls = ec2.proxy.all_calls();

    let of_google = json!({
        "type": "external_account", "audience": "//iam.googleapis.com/a", "token_url": "https://sts.googleapis.com/v1/token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": { "file": file },
        "universe_domain": "googleapis.com",
    });
    let role = "arn:aws:iam::123456789012:role/of-another";
    let file_of_aws = json!({ "workloadIdentityTokenFile": file, "roleARN": role });
    let file_of_a_tenant = json!({ "workloadIdentityTokenFile": file_of_a_tenant, "roleARN": role });
    let file_of_google = json!({ "credentialsConfig": of_google.to_string(), "projectID": "my-project" });
    world.credentials(OTHERS, "empty", json!({ "userData": "x" })).await;
    world.credentials(OTHERS, "endpoint", json!({ "endpointURL": ec2.url })).await;
    world.credentials(OTHERS, "file", file_of_aws).await;
    world.credentials(OTHERS, "file-of-a-tenant", file_of_a_tenant).await;
    world.credentials(OTHERS, "google", file_of_google).await;
    let secret = |name: &str| json!({ "credentialsSecretRef": { "name": name, "namespace": OTHERS } });
    let (fence, folder) =
        ("--process-credentials-namespaces does not allow", "each namespace has the folder of its name");
    let attempts: [(&str, &dyn Simulation, Value, &str); 9] = [
        ("secret-elsewhere", &ec2, own.clone(), "which is in another namespace"),
        (
            "user-data-elsewhere",
            &ec2,
            json!({ "secretRef": { "name": "cloud", "namespace": OURS } }),
            "which is in another namespace",
        ),
        ("no-secret", &ec2, json!({}), fence),
        ("only-user-data", &ec2, json!({ "secretRef": { "name": "empty", "namespace": OTHERS } }), fence),
        ("empty-secret", &ec2, secret("empty"), "has no"),
        ("endpoint-of-a-tenant", &ec2, secret("endpoint"), "has no"),
        ("file-of-the-manager", &ec2, secret("file"), folder),
        ("file-of-a-tenant", &ec2, secret("file-of-a-tenant"), folder),
        ("file-of-the-manager-at-google", &google, secret("google"), folder),
    ];
    for (name, cloud, change, _) in &attempts {
        world.class(OTHERS, name, *cloud, change.clone()).await;
        world.machine(OTHERS, name, name, json!({})).await;
    }
    // The class of the VM in the object itself, and the VM of another tenant.
    let described = |change: Value| {
        let mut content = json!({ "provider": "AWS", "providerSpec": ec2.spec(OTHERS) });
        objects::merge(&mut content, change);
        json!({ "machineClassRef": null, "machineClass": content })
    };
    world.machine(OTHERS, "described", "none", described(own)).await;
    let victim = world.find(OURS, "m").await.0["spec"]["providerID"].clone();
    world.machine(OTHERS, "thief", "no-secret", json!({ "providerID": victim })).await;
    world.machine(OTHERS, "class-elsewhere", "small", json!({})).await;

    for (name, _, _, text) in &attempts {
        is_refused(&world, name, text).await;
    }
    is_refused(&world, "described", "which is in another namespace").await;
    is_refused(&world, "thief", fence).await;
    is_refused(&world, "class-elsewhere", "MachineClass small does not exist").await;

    // The VM of the other tenant also outlives the deletion of the object that names it.
    let thieves = world.api(OTHERS, INFRASTRUCTURE, "MCMMachine");
    thieves.delete("thief", &DeleteParams::default()).await.unwrap();
    wait::until("the deletion to be refused", async || {
        let shown = world.find(OTHERS, "thief").await;
        let [_, reason, message] = shown.condition("Ready")?;
        (reason == "Deleting" && message.contains(fence)).then_some(())
    })
    .await;
    assert_eq!(ec2.proxy.all_calls(), calls, "no call was made with credentials of others");
    assert_eq!((ec2.vms().await.len(), google.count()), (2, 0));
    assert!(google.gce.lock().sent.is_empty());
}
