//! Lists of tasks in one state, page by page.
//!
//! Layer 4. A page is of one moment; a task that moves between two pages may be missed or shown
//! twice.

use super::Inspector;
use super::task::TaskInfo;
use crate::error::{InspectError, shown};
use crate::id::{QueueName, TaskId};
use crate::state::TaskState;
use crate::store::{Listed, PageCursor, PageOf};

/// Which tasks of a list to show.
///
/// ```no_run
/// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
/// use streamfleet::Page;
/// let mut next = Some(Page::first(50));
/// while let Some(page) = next {
///     let shown = client.inspect().archived("default", page).await?;
///     for task in shown.tasks {
///         println!("{}: {}", task.id, task.error.unwrap_or_default());
///     }
///     next = shown.next;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    size: usize,
    after: PageCursor,
}

impl Page {
    /// The first page of at most `size` tasks; at most 100.
    #[must_use]
    pub fn first(size: usize) -> Self {
        Self {
            size,
            after: PageCursor::default(),
        }
    }
}

/// One page of a list.
///
/// ```no_run
/// # async fn example(client: streamfleet::Client) -> Result<(), streamfleet::InspectError> {
/// use streamfleet::Page;
/// let shown = client.inspect().retry("default", Page::first(10)).await?;
/// println!("{} tasks, more: {}", shown.tasks.len(), shown.next.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks, in the order of the list.
    pub tasks: Vec<TaskInfo>,
    /// The page after this one; none after the last.
    pub next: Option<Page>,
}

impl Inspector {
    /// Tasks that wait to be handed out, in their order.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn pending(
        &self,
        queue: impl AsRef<str>,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        self.page(queue.as_ref(), &PageOf::Pending, TaskState::Pending, page)
            .await
    }

    /// Tasks that servers hold.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn active(
        &self,
        queue: impl AsRef<str>,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        self.page(queue.as_ref(), &PageOf::Active, TaskState::Active, page)
            .await
    }

    /// Tasks that wait for their first time, the earliest first.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn scheduled(
        &self,
        queue: impl AsRef<str>,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        self.page(
            queue.as_ref(),
            &PageOf::Scheduled,
            TaskState::Scheduled,
            page,
        )
        .await
    }

    /// Tasks that failed and wait for their next attempt, the earliest first.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn retry(
        &self,
        queue: impl AsRef<str>,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        self.page(queue.as_ref(), &PageOf::Retry, TaskState::Retry, page)
            .await
    }

    /// Tasks that ended without success and are kept, the oldest first.
    ///
    /// # Errors
    /// [`InspectError`]: a bad name, or Redis refuses or does not answer.
    pub async fn archived(
        &self,
        queue: impl AsRef<str>,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        self.page(queue.as_ref(), &PageOf::Archived, TaskState::Archived, page)
            .await
    }

    async fn page(
        &self,
        queue: &str,
        of: &PageOf,
        state: TaskState,
        page: Page,
    ) -> Result<TaskPage, InspectError> {
        let queue = QueueName::new(queue)?;
        let seen = self.store.page(&queue, of, &page.after, page.size).await?;
        let size = page.size;
        Ok(TaskPage {
            tasks: seen
                .tasks
                .into_iter()
                .filter_map(|listed| read(&queue, state, listed))
                .collect(),
            next: seen.next.map(|after| Page { size, after }),
        })
    }
}

/// What a list shows of a task; what nobody can read is left out with a warning.
fn read(queue: &QueueName, state: TaskState, listed: Listed) -> Option<TaskInfo> {
    match listed {
        Listed::Entry(entry) => match TaskInfo::of_envelope(queue, &entry.envelope, state) {
            Ok(info) => Some(TaskInfo {
                entry: Some(entry.entry),
                consumer: entry.consumer,
                deliveries: entry.count,
                ..info
            }),
            Err(error) => {
                tracing::warn!(%queue, entry = %entry.entry, "a task cannot be shown: {error}");
                None
            }
        },
        Listed::Recorded { ref id, .. } => {
            let read = TaskId::new(id).ok().zip(listed.record()?.ok());
            if read.is_none() {
                tracing::warn!(%queue, id = shown(id), "a record cannot be shown");
            }
            read.map(|(id, record)| TaskInfo::of_record(queue, &id, record))
        }
    }
}
