//! `mcm dashboard` over HTTP: only its own page reads it, and its JSON is that of `mcm why`.

use std::{env, ffi::OsString, fs, path::Path, process::Stdio};

use kube::api::{Patch, PatchParams};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::support::{
    control_plane::ControlPlane, door::Door, identity, objects, pods, program::mcm, secrets, wait, world::World,
};

/// A dashboard that runs, and its address.
pub struct Dashboard {
    url: String,
    http: Client,
    _process: Child,
}

impl Dashboard {
    async fn start(world: &World) -> Self {
        Self::of(world, world.admin()).await
    }

    /// Of a user.
    pub async fn of(world: &World, kubeconfig: &Path) -> Self {
        let mut process = Command::new(mcm())
            .args(["dashboard", "-n", &world.namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { url, http: Client::builder().no_proxy().build().unwrap(), _process: process }
    }

    pub async fn get(&self, path: &str) -> Response {
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
    world.until("two machines", |scene| scene.machines.len() == 2).await;
    // A user has to act, so that no later plan changes the result.
    let why = crate::why::until_code(&world, "pool", 3).await;
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
    assert_eq!(document["objects"][0]["verdict"], why.answer["verdict"]);
    assert_eq!(document["objects"][0]["object"], why.answer["object"]);
    assert_eq!((&document["apiVersion"], &document["kind"]), (&json!("cli.mcm/v1"), &json!("Explanation")));
}

/// The page of a browser stays readable; a program gets no former state.
#[tokio::test]
async fn the_last_state_stays_while_the_api_server_does_not_answer() {
    const AWAY: &str = "no answer of the control cluster since";
    let world = World::new("page-away").await;
    world.classes().await;
    world.apply(objects::deployment("pool", 0)).await;
    let viewer = identity::viewer(&world.client, world.admin(), &world.namespace, true, world.folder()).await;
    let door = Door::to(ControlPlane::shared().await).await;
    identity::change(&viewer, "/clusters/0/cluster/server", door.url().into());
    let dashboard = Dashboard::of(&world, &viewer).await;
    let shown = async |is_away: bool| {
        wait::until(&format!("a page with {AWAY:?}: {is_away}"), async || {
            let page = dashboard.get("").await;
            assert_eq!(page.status(), StatusCode::OK);
            let page = page.text().await.unwrap();
            assert!(page.contains("?deployment=pool"), "{page}");
            (page.contains(AWAY) == is_away).then_some(())
        })
        .await;
    };
    shown(false).await;
    door.refuse(|_| Some(http::StatusCode::INTERNAL_SERVER_ERROR));
    shown(true).await;
    assert_eq!(dashboard.get("api/why").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    door.refuse(|_| None);
    shown(false).await;
    assert_eq!(dashboard.get("api/why").await.status(), StatusCode::OK);
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

#[tokio::test]
async fn idle_connections_of_other_programs_are_closed_so_that_the_page_opens() {
    let world = World::new("page-idle").await;
    world.classes().await;
    let dashboard = Dashboard::start(&world).await;
    let address = dashboard.url.trim_start_matches("http://").split('/').next().unwrap();
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(dashboard.get("").await.status(), StatusCode::OK);
    let closed = idle.first_mut().unwrap().read(&mut [0]).await;
    assert!(!matches!(closed, Ok(read) if read > 0), "the oldest was closed");
}

/// Deployments as an operator meets them: a rollout that a budget stops, a cloud without room, and one that is settled.
async fn stuck(world: &World) {
    world.classes().await;
    let mut class = objects::class("gpu");
    class["providerSpec"]["instanceType"] = "gpu".into();
    world.apply(class).await;
    world.cloud.control(json!({"stockOuts": [{"instanceType": "gpu"}]})).await;
    for (name, class, replicas) in [("batch", "small", 2), ("gpu", "gpu", 1), ("web", "small", 3)] {
        let mut deployment = objects::deployment(name, replicas);
        deployment["spec"]["template"]["spec"]["class"]["name"] = class.into();
        world.apply(deployment).await;
    }
    let nodes = world
        .find("five machines that serve", |scene| {
            let serving: Vec<String> =
                scene.machines.iter().filter(|(_, it)| it.is_available()).map(|(name, _)| name.clone()).collect();
            (serving.len() == 5).then_some(serving)
        })
        .await;
    for node in nodes.iter().filter(|name| name.starts_with("web")) {
        pods::run(&world.target, &world.namespace, pods::pod(&format!("on-{node}"), node)).await;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    });
    world.apply(budget).await;
    let large = json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}});
    world.deployments().patch("web", &PatchParams::default(), &Patch::Merge(large)).await.unwrap();
    world
        .until("a drain that the budget stops", |scene| {
            let text = |machine: &mcm::api::machine::Machine| {
                machine.status.clone().unwrap_or_default().last_operation.description
            };
            scene.machines.values().any(|machine| text(machine).contains("disruption budget"))
        })
        .await;
}

/// Headless Chromium, which `make test-dashboard` provides.
struct Browser {
    program: OsString,
    folder: TempDir,
}

impl Browser {
    fn find() -> Option<Self> {
        Some(Self { program: env::var_os("MCM_CHROMIUM")?, folder: tempfile::tempdir().unwrap() })
    }

    /// Opens an address with further flags. Names of other hosts lead nowhere.
    async fn open(&self, flags: &[&str], url: &str) -> String {
        const FLAGS: [&str; 9] = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--allow-file-access-from-files",
        ];
        let nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1";
        let has_rules = flags.iter().any(|flag| flag.starts_with("--host-resolver-rules"));
        let output = Command::new(&self.program)
            .args(FLAGS)
            .args((!has_rules).then_some(nowhere))
            .arg(format!("--user-data-dir={}", self.folder.path().join("profile").display()))
            .args(flags)
            .arg(url)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The colours that a user prefers, as Chromium takes them.
const SCHEMES: [(&str, &str); 2] =
    [("light", "--blink-settings=preferredColorScheme=1"), ("dark", "--blink-settings=preferredColorScheme=0")];

#[tokio::test]
async fn a_browser_shows_the_page_and_axe_finds_no_violation() {
    let (Some(browser), Some(axe)) = (Browser::find(), env::var_os("MCM_AXE")) else { return };
    let world = World::new("page-browser").await;
    // With election, so that the page names who leads.
    let _manager = world.launch_run(&[]).ready().await;
    stuck(&world).await;
    let dashboard = Dashboard::start(&world).await;
    let address = format!("{}?deployment=web", dashboard.url);
    let is_told = |page: &str| page.contains("Why it does not go on") && page.contains("disruption budget");
    let log = browser.folder.path().join("net.json");
    let page = browser.open(&["--dump-dom", &format!("--log-net-log={}", log.display())], &address).await;
    assert!(is_told(&page), "{page}");
    let requested = requested(&log, &dashboard.url);
    assert!(requested.iter().any(|url| url.ends_with("/style.css")), "{requested:?}");
    assert!(requested.iter().all(|url| url.starts_with("http://127.0.0.1:")), "{requested:?}");
    let page = dashboard.get("?deployment=web").await.text().await.unwrap();
    assert!(is_told(&page), "without script: {page}");

    let axe = fs::read_to_string(axe).unwrap();
    let copy = browser.folder.path().join("page.html");
    fs::write(&copy, judged(&dashboard, &axe).await).unwrap();
    for (name, scheme) in SCHEMES {
        let size = "--window-size=1240,1300";
        let in_file = format!("file://{}", copy.display());
        let found = browser.open(&[size, scheme, "--virtual-time-budget=20000", "--dump-dom"], &in_file).await;
        assert!(found.contains("<pre id=\"axe\">[]</pre>"), "{name}: {found}");
        if let Some(folder) = env::var_os("MCM_PICTURES") {
            let picture = Path::new(&folder).join(format!("dashboard-{name}.png"));
            browser.open(&[size, scheme, &format!("--screenshot={}", picture.display())], &address).await;
            let length = fs::metadata(&picture).unwrap().len();
            assert!((10_000..200_000).contains(&length), "{} has {length} bytes", picture.display());
        }
    }
    let narrow = browser.open(&["--window-size=500,900", "--dump-dom"], &address).await;
    assert!(is_told(&narrow));
}

/// The page without its own script, and with axe, which writes the violations. The page itself allows no other script.
async fn judged(dashboard: &Dashboard, axe: &str) -> String {
    const JUDGE: &str = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})\
        .then((found) => {\
            const text = JSON.stringify(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)]));\
            document.documentElement.innerHTML = '<body><pre id=axe></pre></body>';\
            document.getElementById('axe').textContent = text;\
        })";
    let style = dashboard.get("style.css").await.text().await.unwrap();
    let html = dashboard.get("?deployment=web").await.text().await.unwrap();
    let html = html.replace("<link rel=\"stylesheet\" href=\"style.css\">", &format!("<style>{style}</style>"));
    let html = html.replace("<script src=\"script.js\" defer></script>", "");
    html.replace("</body>", &format!("<script>{axe}\n{JUDGE}</script></body>"))
}

/// The addresses that the page requested, from the log of the browser's network. The browser itself also makes requests.
fn requested(log: &Path, page: &str) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let origin = page.split('/').take(3).collect::<Vec<_>>().join("/");
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.trim_end_matches(',')).ok());
    let of_page = events.filter(|event| event["params"]["initiator"] == origin.as_str());
    of_page.filter_map(|event| event["params"]["url"].as_str().map(str::to_owned)).collect()
}

/// Another page in the same browser, and a name of another server that suddenly leads to this computer.
#[tokio::test]
async fn a_browser_shows_the_page_to_no_other_origin() {
    let Some(browser) = Browser::find() else { return };
    let world = World::new("page-origin").await;
    world.classes().await;
    world.apply(objects::deployment("pool", 0)).await;
    let dashboard = Dashboard::start(&world).await;
    let own = browser.open(&["--dump-dom"], &dashboard.url).await;
    assert!(own.contains("pool"), "{own}");

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let other = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let script = format!(
        "const read = (mode) => fetch('{}', {{mode}}).then((answer) => answer.text()).then((text) => text || 'empty', () => 'refused');\
         Promise.all(['cors', 'no-cors'].map(read)).then((all) => document.body.textContent = 'read: ' + all.join(' and '))",
        dashboard.url
    );
    let page = format!("<!doctype html><title>other</title><body><script>{script}</script></body>");
    let router = axum::Router::new().fallback(async move || axum::response::Html(page));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let read = browser.open(&["--virtual-time-budget=10000", "--dump-dom"], &other).await;
    server.abort();
    assert!(read.contains("read: refused and refused") || read.contains("read: refused and empty"), "{read}");

    let address = dashboard.url.trim_start_matches("http://127.0.0.1:");
    let rules = "--host-resolver-rules=MAP attacker.example 127.0.0.1";
    let rebound = browser.open(&[rules, "--dump-dom"], &format!("http://attacker.example:{address}")).await;
    assert!(rebound.contains("open the address that mcm dashboard printed") && !rebound.contains("pool"), "{rebound}");
}
