// The frame around all pages: sign-in, navigation, the colour scheme, and whether what is shown is live.

import { render, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api";
import { Dialogs } from "./dialog";
import { Clones } from "./pages/clones";
import { Dashboard } from "./pages/dashboard";
import { DrivePage, Drives } from "./pages/drives";
import { Events } from "./pages/events";
import { Migrations } from "./pages/migrations";
import { Picture } from "./pages/picture";
import { PoolPage, Pools } from "./pages/pools";
import { SchedulePage, Schedules } from "./pages/schedules";
import { ServerPage, Servers } from "./pages/servers";
import { Snapshots } from "./pages/snapshots";
import { VolumePage, Volumes } from "./pages/volumes";
import { useSignal } from "./signal";
import "./style.css";
import { Failure, State } from "./widgets";

const PAGES: Record<string, { title: string; show: (name: string) => ComponentChildren }> = {
  "": { title: "Dashboard", show: () => <Dashboard /> },
  servers: { title: "Servers", show: (id) => (id ? <ServerPage id={id} /> : <Servers />) },
  drives: { title: "Drives", show: (id) => (id ? <DrivePage id={id} /> : <Drives />) },
  pools: { title: "Pools", show: (name) => (name ? <PoolPage name={name} /> : <Pools />) },
  volumes: { title: "Volumes", show: (name) => (name ? <VolumePage name={name} /> : <Volumes />) },
  snapshots: { title: "Snapshots", show: () => <Snapshots /> },
  clones: { title: "Clones", show: () => <Clones /> },
  schedules: { title: "Schedules", show: (name) => (name ? <SchedulePage name={name} /> : <Schedules />) },
  migrations: { title: "Migrations", show: () => <Migrations /> },
  events: { title: "Events", show: () => <Events /> },
  picture: { title: "Picture", show: (name) => <Picture key={name} name={name} /> },
};
const SINGULAR: Record<string, string> = { servers: "Server", drives: "Drive", pools: "Pool", volumes: "Volume", schedules: "Schedule", picture: "Picture of" };

function place(): { page: string; name: string } {
  const [page = "", name = ""] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { page: page in PAGES ? page : "", name: decodeURIComponent(name) };
  } catch {
    return { page: "", name: "" };
  }
}

function usePlace() {
  const [now, setNow] = useState(place);
  useEffect(() => {
    const moved = () => setNow(place());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return now;
}

type Scheme = "auto" | "light" | "dark";
const SCHEME = "tepal-scheme";

function useScheme(): [Scheme, (scheme: Scheme) => void] {
  const [scheme, setScheme] = useState<Scheme>(() => (localStorage.getItem(SCHEME) as Scheme | null) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.scheme = scheme;
    localStorage.setItem(SCHEME, scheme);
  }, [scheme]);
  return [scheme, setScheme];
}

function SignIn() {
  const because = useSignal(api.signedOutBecause);
  const [typed, setTyped] = useState("");
  const [said, setSaid] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!typed.trim()) return setSaid("Type the token.");
    try {
      if (await api.isRight(typed.trim())) return api.signIn(typed.trim());
      setSaid("The server doesn't know this token.");
    } catch {
      setSaid("The server doesn't answer.");
    }
    field.current?.focus();
  };
  return (
    <main class="sign-in">
      <h1>Tepal</h1>
      <form onSubmit={submit}>
        <div class="field">
          <label for="token">Token</label>
          <input id="token" ref={field} type="password" autocomplete="off" value={typed} aria-describedby="token-hint" onInput={(event) => setTyped(event.currentTarget.value)} />
          <small id="token-hint">
            It's in the file <code>token</code> of each server's data folder. It's forgotten when this tab is closed.
          </small>
        </div>
        <Failure text={said || because} />
        <div class="buttons">
          <button type="submit" class="main">
            Sign in
          </button>
        </div>
      </form>
    </main>
  );
}

function Frame() {
  const { page, name } = usePlace();
  const [scheme, setScheme] = useScheme();
  const status = useSignal(api.status);
  const connection = useSignal(api.connection);
  const heading = useRef<HTMLHeadingElement>(null);
  const first = useRef(true);
  const title = name ? `${SINGULAR[page] ?? PAGES[page].title} ${name}` : PAGES[page].title;
  useEffect(() => {
    const ending = new AbortController();
    void api.follow(ending.signal);
    return () => ending.abort();
  }, []);
  useEffect(() => {
    document.title = `${title} · ${status?.cluster ?? "Tepal"}`;
  }, [title, status?.cluster]);
  useEffect(() => {
    if (!first.current) heading.current?.focus();
    first.current = false;
  }, [page, name]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), heading.current?.focus())}>
        To the content
      </a>
      <header>
        <a class="brand" href="#/">
          Tepal
        </a>
        {status && <span class="cluster">{status.cluster}</span>}
        <span role="status" class="now">
          {status && <State of={status.health} />} <State of={connection} />
        </span>
        <label class="scheme">
          Colours{" "}
          <select value={scheme} onChange={(event) => setScheme(event.currentTarget.value as Scheme)}>
            <option value="auto">as the system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>
        <button type="button" class="small" onClick={() => api.signOut()}>
          Sign out
        </button>
      </header>
      <nav aria-label="Pages">
        <ul>
          {Object.entries(PAGES).map(([key, one]) => (
            <li>
              <a href={`#/${key}`} aria-current={key === page ? "page" : undefined}>
                {one.title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main">
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        {connection === "lost" && <Failure text="This server doesn't answer: what is shown may be old. It's tried again and again; another server has the same console." />}
        {PAGES[page].show(name)}
      </main>
      <Dialogs />
    </>
  );
}

function App() {
  const token = useSignal(api.token);
  const [scheme] = useScheme();
  void scheme;
  return token ? <Frame /> : <SignIn />;
}

render(<App />, document.getElementById("app")!);
