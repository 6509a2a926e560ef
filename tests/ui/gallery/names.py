"""The names in the gallery: Airflow's Dags import them too, so nothing else stands here."""

DAILY, MANY, ONE, NAMES, SECRET, SEALED, UNTRAINED, SWEEP, STEADY = (
    "ctr_ranker_daily",
    "ctr_ranker_half_hourly",
    "first_of_its_kind",
    "hostile_names",
    "secret_ranker",
    "sealed_runs",
    "untrained",
    "sweep",
    "trains_right_now",
)
HEBREW = "דירוג_יומי"
LONG = "long_" + "name_" * 49
FLEET = (
    *("retrieval_two_tower", "feed_ranking_v7", "ads_conversion"),
    *("ads_calibration", "search_semantic", "search_rerank"),
    *("video_recs_large", "video_recs_small", "notif_uplift"),
    *("embed_refresh", "spam_detect", "marketplace_match"),
    *("price_elasticity", "asr_finetune", "llm_sft_7b"),
    *("llm_sft_70b", "llm_dpo_7b", "vision_quality"),
    *("user_ltv", "churn_weekly", "geo_eta"),
)
DAGS = (DAILY, MANY, ONE, NAMES, SECRET, SEALED, UNTRAINED, SWEEP, STEADY, HEBREW, LONG, *FLEET)
HOSTILE = "\"><img src=x onerror=\"document.title='gone'\">$bg<b>x</b>'"
HOSTILE_RUNS = {
    "html": HOSTILE,
    "slash": "a/b/../c?d#e&f=%0A",
    "token": "$bg",
    "hebrew": "ריצה\u202e_1",
    "long": "r" * 250,
}
LIVE_RUN = "manual__live"
STEADY_RUN = "manual__steady"
SWEEP_RUN = "manual__sweep"
FIRST_RUN = "manual__first"
