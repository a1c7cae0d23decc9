//! Control planes from a folder: each file is the kubeconfig of the namespace of its name, and each sub-folder has one with its
//! token.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use anyhow::{Context, Result, bail};
use tokio::task::spawn_blocking;

use super::planes::{FoundPlanes, PlaneProblem, ServerRule, target_of};
use mcm_runtime::files;

/// Most control planes of a folder.
const MOST: usize = 10_000;
/// Most bytes of a kubeconfig.
const KUBECONFIG: u64 = 1 << 20;
/// Most bytes of a token.
const TOKEN: u64 = 64 << 10;

/// The texts of one control plane.
struct PlaneTexts {
    kubeconfig: String,
    token: Option<String>,
}

/// The control planes in a folder.
///
/// # Errors
/// The folder cannot be listed, or has too many entries. Files that cannot be read are problems of their control planes.
pub(super) async fn planes(folder: &Path) -> Result<FoundPlanes> {
    let texts = {
        let folder = folder.to_owned();
        spawn_blocking(move || texts(&folder)).await?
    };
    let texts = texts.with_context(|| format!("list the control planes of {}", folder.display()))?;
    let mut planes = BTreeMap::new();
    for (name, read) in texts {
        let origin = folder.join(&name).display().to_string();
        let found = match read {
            Err(problem) => Err(problem),
            Ok(PlaneTexts { kubeconfig, token }) => {
                target_of((&name, &origin), &kubeconfig, token.as_deref(), ServerRule::Any).await
            }
        };
        planes.insert(name, found);
    }
    Ok(planes)
}

fn texts(folder: &Path) -> Result<BTreeMap<String, Result<PlaneTexts, PlaneProblem>>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The kubelet keeps the files of a mounted Secret in a folder whose name begins so.
        if name.starts_with('.') {
            continue;
        }
        if texts.len() == MOST {
            bail!("it has more than {MOST} entries");
        }
        let read = if is_namespace(&name) {
            let unread = |error: io::Error| PlaneProblem::Unread { what: name.clone(), cause: error.to_string() };
            read(&entry.path()).map_err(unread)
        } else {
            Err(PlaneProblem::Name { name: name.clone() })
        };
        texts.insert(name, read);
    }
    Ok(texts)
}

fn read(path: &Path) -> io::Result<PlaneTexts> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(PlaneTexts { kubeconfig: files::read_text(path, KUBECONFIG)?, token: None });
    }
    let kubeconfig = files::read_text(&path.join("kubeconfig"), KUBECONFIG)?;
    match files::read_text(&path.join("token"), TOKEN) {
        Ok(token) => Ok(PlaneTexts { kubeconfig, token: Some(token) }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(PlaneTexts { kubeconfig, token: None }),
        Err(error) => Err(error),
    }
}

fn is_namespace(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str) -> String {
        format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://one.example'}}}}], users: [{{name: a, user: {user}}}]}}"
        )
    }

    #[tokio::test]
    async fn files_and_folders_are_control_planes_and_a_bad_one_is_shown_beside_the_others() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("one"), kubeconfig("{token: x}")).unwrap();
        fs::create_dir(at("two")).unwrap();
        let token_file = "{tokenFile: /var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token}";
        fs::write(at("two/kubeconfig"), kubeconfig(token_file)).unwrap();
        fs::write(at("two/token"), "beside").unwrap();
        fs::write(at(".hidden"), "").unwrap();
        fs::write(at("No_Name"), "").unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("exec"), kubeconfig("{exec: {command: sh}}")).unwrap();
        fs::File::create(at("huge")).unwrap().set_len(10 << 30).unwrap();
        let planes = planes(folder.path()).await.unwrap();
        let text = |name: &str| planes[name].as_ref().unwrap_or_else(|problem| panic!("{problem}")).text.clone();
        assert!(text("one").contains("\"x\"") && text("two").contains("\"beside\""));
        let problem = |name: &str| planes[name].as_ref().err().unwrap().to_string();
        assert!(problem("No_Name").contains("not the name of a namespace"));
        assert!(problem("empty").contains("read empty: "));
        assert!(problem("exec").contains("exec is not allowed"));
        assert!(problem("huge").contains("more than 1024 KiB"));
        assert_eq!(planes.len(), 6);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_listed_is_an_error() {
        let folder = tempfile::TempDir::new().unwrap();
        let missing = folder.path().join("missing");
        assert!(planes(&missing).await.err().unwrap().to_string().contains("missing"));
    }
}
