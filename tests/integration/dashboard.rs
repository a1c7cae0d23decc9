//! `mcm dashboard` over HTTP: only its own page reads it, and its JSON is that of `mcm why`.

use std::{env, process::Stdio};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::support::{objects, program::mcm, secrets, world::World};

/// A dashboard that runs, and its address.
struct Dashboard {
    url: String,
    http: Client,
    _process: Child,
}

impl Dashboard {
    async fn start(world: &World) -> Self {
        let mut process = Command::new(mcm())
            .args(["dashboard", "-n", &world.namespace, "--kubeconfig"])
            .arg(world.admin())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { url, http: Client::builder().no_proxy().build().unwrap(), _process: process }
    }

    async fn get(&self, path: &str) -> Response {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    async fn with(&self, name: &str, value: &str) -> StatusCode {
        self.http.get(&self.url).header(name, value).send().await.unwrap().status()
    }
}

#[tokio::test]
async fn the_page_names_what_a_pool_waits_for() {
    let world = World::new("page-secret").await;
    let _manager = world.run(&[]).await;
    for name in ["small", "large"] {
        world.apply(objects::class(name)).await;
    }
    world.apply(objects::deployment("pool", 2)).await;
    world.until("machines that wait", |scene| scene.machines.len() == 2).await;
    let dashboard = Dashboard::start(&world).await;

    let page = dashboard.get("").await;
    assert_eq!(
        page.headers()["content-security-policy"].to_str().unwrap().split(';').next(),
        Some("default-src 'self'")
    );
    let page = page.text().await.unwrap();
    assert!(page.contains("Why it does not go on") && page.contains("Machines · 2"), "{page}");
    assert!(page.contains("waits for") && page.contains("pool"), "{page}");
    assert!(!secrets::are_in(&page));
    for asset in ["style.css", "script.js"] {
        assert_eq!(dashboard.get(asset).await.status(), StatusCode::OK, "{asset}");
    }
    assert_eq!(dashboard.get("?deployment=pool").await.status(), StatusCode::OK);
    assert_eq!(dashboard.get("?deployment=nonesuch").await.status(), StatusCode::NOT_FOUND);

    let document: Value = dashboard.get("api/why?object=pool").await.json().await.unwrap();
    let why = crate::why::ask(&world, "pool").await;
    assert_eq!(document["objects"][0]["verdict"], why.answer["verdict"]);
    assert_eq!(document["objects"][0]["object"], why.answer["object"]);
    assert_eq!((&document["apiVersion"], &document["kind"]), (&json!("cli.mcm/v1"), &json!("Explanation")));
}

#[tokio::test]
async fn pages_of_other_origins_and_names_are_refused() {
    let world = World::new("page-door").await;
    world.classes().await;
    let dashboard = Dashboard::start(&world).await;
    assert_eq!(dashboard.get("").await.status(), StatusCode::OK);
    assert_eq!(dashboard.with("host", "attacker.example").await, StatusCode::FORBIDDEN);
    assert_eq!(dashboard.with("sec-fetch-site", "cross-site").await, StatusCode::FORBIDDEN);
    let root = dashboard.url.split('/').take(3).collect::<Vec<_>>().join("/");
    for path in ["/", "/api/why", "/00000000000000000000000000000000/"] {
        let answer = dashboard.http.get(format!("{root}{path}")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(answer.headers().get("access-control-allow-origin").is_none());
    }
    let posted = dashboard.http.post(&dashboard.url).body("x").send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
}

/// The page in a browser, which `hack/dashboard` provides: it loads nothing from elsewhere, and axe finds no violation.
#[tokio::test]
async fn a_browser_shows_the_page_and_axe_finds_no_violation() {
    let (Some(browser), Some(axe)) = (env::var_os("MCM_CHROMIUM"), env::var_os("MCM_AXE")) else { return };
    let world = World::new("page-browser").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let mut waits = objects::deployment("waits", 2);
    waits["spec"]["template"]["spec"]["class"]["name"] = "nowhere".into();
    world.apply(waits).await;
    world.until("machines that wait", |scene| scene.machines.len() == 4).await;
    let dashboard = Dashboard::start(&world).await;
    let folder = tempfile::tempdir().unwrap();
    let run = async |words: &[&str], url: &str| {
        let output = Command::new(&browser)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1240,860"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--allow-file-access-from-files"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .args(words)
            .arg(url)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let page = run(&["--dump-dom"], &dashboard.url).await;
    assert!(page.contains("Why it does not go on") && page.contains("nowhere"), "{page}");
    if let Some(picture) = env::var_os("MCM_PICTURE") {
        run(&[&format!("--screenshot={}", picture.display())], &dashboard.url).await;
    }

    // The page itself allows no script but its own.
    let style = dashboard.get("style.css").await.text().await.unwrap();
    let axe = std::fs::read_to_string(axe).unwrap();
    let judge = "axe.run().then(found => document.documentElement.innerHTML = '<p id=axe>' + \
                 btoa(JSON.stringify(found.violations.map(one => [one.id, one.nodes.length]))) + '</p>')";
    let html = dashboard.get("").await.text().await.unwrap();
    let html = html.replace("<link rel=\"stylesheet\" href=\"style.css\">", &format!("<style>{style}</style>"));
    let html = html.replace("<script src=\"script.js\" defer></script>", "");
    let copy = folder.path().join("page.html");
    std::fs::write(&copy, html.replace("</body>", &format!("<script>{axe}\n{judge}</script></body>"))).unwrap();
    let judged = run(&["--virtual-time-budget=10000", "--dump-dom"], &format!("file://{}", copy.display())).await;
    let none = "<p id=\"axe\">W10=</p>";
    assert!(judged.contains(none), "violations in base64: {judged}");
}
